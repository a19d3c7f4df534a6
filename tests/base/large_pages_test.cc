#include "base/large_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace ballast {
namespace {

struct Array {
  unsigned char* begin;
  std::size_t bytes;
  unsigned char mark;
};

Array make(LargePages& pages, std::size_t bytes, unsigned char mark) {
  auto* begin = static_cast<unsigned char*>(pages.allocate(bytes));
  std::memset(begin, mark, bytes);
  return {begin, bytes, mark};
}

bool intact(const Array& array) {
  return std::all_of(array.begin, array.begin + array.bytes,
                     [&](unsigned char byte) { return byte == array.mark; });
}

// Of the array's pages of 4 KiB, how many lie in memory.
std::size_t resident(const void* begin, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  if (::mincore(const_cast<void*>(begin), bytes, pages.data()) != 0) return 0;  // not mapped
  return static_cast<std::size_t>(
      std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(LargePages, ArraysKeepWhatIsWrittenWhileOthersComeAndGo) {
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    LargePages pages;
    std::vector<Array> arrays;
    for (int step = 0; step < 300; ++step) {
      if (arrays.size() < 3 || random() % 2 == 0) {
        const std::size_t most = random() % 16 == 0 ? 5 * kLargePage : 300'000;
        arrays.push_back(
            make(pages, 1 + random() % most, static_cast<unsigned char>(random() % 255)));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrays.back().begin) % 4096, 0u);
      } else {
        std::swap(arrays[random() % arrays.size()], arrays.back());
        ASSERT_TRUE(intact(arrays.back())) << "seed " << seed << ", step " << step;
        pages.free(arrays.back().begin);
        arrays.pop_back();
      }
    }
    std::size_t bytes = 0;
    for (const Array& array : arrays) bytes += (array.bytes + 64 + 4095) / 4096 * 4096;
    EXPECT_EQ(pages.bytes(), bytes);
    for (const Array& array : arrays) {
      EXPECT_TRUE(intact(array));
      pages.free(array.begin);
    }
    EXPECT_EQ(pages.bytes(), 0u);
  }
}

TEST(LargePages, ArraysShareAPageAndOnesGoneMakeRoom) {
  LargePages pages;
  std::vector<Array> arrays;
  for (unsigned char i = 0; i < 8; ++i) arrays.push_back(make(pages, 200'000, i));
  unsigned char* first = arrays[0].begin;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % kLargePage, 0u);
  for (const Array& array : arrays) {
    EXPECT_GE(array.begin, first);
    EXPECT_LE(array.begin + array.bytes, first + kLargePage);
  }
  // A hole of three arrays takes one of their size.
  pages.free(arrays[3].begin);
  pages.free(arrays[5].begin);
  pages.free(arrays[4].begin);
  EXPECT_EQ(make(pages, 600'000, 9).begin, arrays[3].begin);
  EXPECT_TRUE(intact(arrays[2]) && intact(arrays[6]));
}

TEST(LargePages, MemoryGoesBackAsSoonAsNoArrayLiesInAPage) {
  LargePages pages;
  const Array low = make(pages, 4 * kLargePage, 1);
  const Array high = make(pages, 100, 2);
  EXPECT_EQ(resident(low.begin, low.bytes), low.bytes / 4096);
  pages.free(low.begin);
  EXPECT_EQ(resident(low.begin, low.bytes), 0u);
  EXPECT_TRUE(intact(high));
  // In pieces, from both ends.
  std::vector<Array> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(make(pages, kLargePage / 2 - 4096, 3));
  ASSERT_EQ(parts[0].begin, low.begin);
  for (std::size_t i : {0, 7, 1, 6, 2, 5, 3, 4}) pages.free(parts[i].begin);
  EXPECT_EQ(resident(low.begin, low.bytes), 0u);
  pages.free(high.begin);
  unsigned char state[kLargePage / 4096];
  EXPECT_EQ(::mincore(low.begin, kLargePage, state), -1) << "no array is left, but addresses are";
}

TEST(LargePages, MoreThanThereIsIsRefused) {
  LargePages pages;
  EXPECT_THROW(pages.allocate(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(pages.allocate(SIZE_MAX / 2 - 4096), std::bad_alloc);
  const Array array = make(pages, 1, 1);  // and changes nothing
  EXPECT_TRUE(intact(array));
}

TEST(LargePages, ThreadsMayShareThem) {
  LargePages pages;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 200; ++i) {
        const Array a = make(pages, 1 + random() % 100'000, static_cast<unsigned char>(t));
        const Array b = make(pages, 1 + random() % 100'000, static_cast<unsigned char>(t + 100));
        wrong[t] += !intact(a) + !intact(b);
        pages.free(a.begin);
        wrong[t] += !intact(b);
        pages.free(b.begin);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace ballast
