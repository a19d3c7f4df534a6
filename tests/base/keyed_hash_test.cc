#include "base/keyed_hash.h"

#include <functional>
#include <set>
#include <string>
#include <unordered_map>

#include "gtest/gtest.h"

namespace ballast {
namespace {

// Texts that the hash of libstdc++ (Murmur, 64 bits) brings to one value: each pair of blocks may
// be the first or the second, as what the first block changes the next one changes back.
std::vector<std::string> texts_that_meet(int pairs) {
  constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995, kTop = std::uint64_t{1} << 63;
  std::uint64_t inverse = kFactor;  // Newton's iteration modulo 2^64
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  const auto mixed = [](std::uint64_t k) { return k ^ k >> 47; };
  std::vector<std::string> texts{""};
  for (int pair = 0; pair < pairs; ++pair) {
    std::string block[2];
    for (std::uint64_t half = 0; half < 2; ++half) {
      const std::uint64_t word = 0x6162636465666768 + 77 * (2 * pair + half);
      const std::uint64_t other =
          mixed((mixed(word * kFactor) * kFactor ^ kTop) * inverse) * inverse;
      block[0].append(reinterpret_cast<const char*>(&word), sizeof word);
      block[1].append(reinterpret_cast<const char*>(&other), sizeof other);
    }
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      longer.push_back(text + block[0]);
      longer.push_back(text + block[1]);
    }
    texts = std::move(longer);
  }
  return texts;
}

TEST(KeyedHash, TextsThatMeetInTheLibrarysHashDoNotMeet) {
  const std::vector<std::string> texts = texts_that_meet(12);
  std::set<std::size_t> library;
  std::set<std::uint64_t> ours;
  for (const std::string& text : texts) {
    library.insert(std::hash<std::string>()(text));
    ours.insert(keyed_hash(text));
  }
#if defined(__GLIBCXX__) && defined(__x86_64__)
  EXPECT_EQ(library.size(), 1u);
#endif
  EXPECT_EQ(ours.size(), texts.size());  // otherwise with probability below 1e-11
}

TEST(KeyedHash, TellsLengthsAndPlacesApart) {
  std::set<std::uint64_t> found;
  std::size_t count = 0;
  for (std::size_t length = 0; length < 40; ++length) {  // zeros, and one other byte anywhere
    found.insert(keyed_hash(std::string(length, '\0')));
    ++count;
    for (std::size_t i = 0; i < length; ++i) {
      std::string text(length, '\0');
      text[i] = '\xff';
      found.insert(keyed_hash(text));
      EXPECT_EQ(keyed_hash(text), keyed_hash(std::string(text)));
      ++count;
    }
  }
  EXPECT_EQ(found.size(), count);
  for (const std::uint64_t hash : found) EXPECT_LT(hash, (std::uint64_t{1} << 61) - 1);
}

TEST(KeyedHash, TablesOfNumbersAndOfTexts) {
  std::unordered_map<std::uint64_t, int, KeyedHash> numbers;
  std::unordered_map<std::string_view, int, KeyedHash> texts;
  numbers[7] = 1;
  texts["7"] = 2;
  EXPECT_EQ(numbers.at(7) + texts.at("7"), 3);
  EXPECT_EQ(KeyedHash()(std::uint64_t{7}), keyed_hash(std::uint64_t{7}));
  EXPECT_EQ(KeyedHash()(std::string_view("7")), keyed_hash("7"));
}

TEST(KeyedHash, NumbersSpreadOverTheirPlaces) {
  // 64,000 numbers in 64 places: 1,000 each, standard deviation 31; seven of it with a probability
  // below 1e-9 for independent ones.
  for (const int shift : {0, 32}) {
    std::vector<int> places(64);
    for (std::uint64_t i = 0; i < 64'000; ++i) {
      const std::size_t place = place_of(keyed_hash(i << shift), places.size());
      ASSERT_LT(place, places.size());
      ++places[place];
    }
    for (const int count : places) {
      EXPECT_GT(count, 500);
      EXPECT_LT(count, 2000);
    }
  }
  EXPECT_EQ(place_of(0, 7), 0u);
  EXPECT_EQ(place_of((std::uint64_t{1} << 61) - 1, 7), 6u);
  EXPECT_EQ(place_of(keyed_hash(5), 1), 0u);
}

}  // namespace
}  // namespace ballast
