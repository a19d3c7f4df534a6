// Every input of fuzz/corpus through its target, and as many damaged copies as take seconds: in the
// release build too. None may crash, take over 10 s, or take memory out of proportion to the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <ostream>

#include "paths.h"
#include "target.h"

namespace {

std::atomic<std::size_t> in_use = 0, most_in_use = 0;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSeconds = 100;  // a sanitizer takes ten times as long, and keeps the heap
#else
constexpr double kSeconds = 10;
// Counts what is in use. The size stands in front of what is handed out.
namespace {

constexpr std::size_t kFront = alignof(std::max_align_t);

void* take(std::size_t size, std::size_t front) {
  if (size > SIZE_MAX - front) throw std::bad_alloc();
  // Whole multiples of the alignment, which is `front`.
  void* begin = std::aligned_alloc(front, (size + 2 * front - 1) / front * front);
  if (begin == nullptr) throw std::bad_alloc();
  std::memcpy(begin, &size, sizeof(size));
  const std::size_t now = in_use += size;
  for (std::size_t most = most_in_use;
       now > most && !most_in_use.compare_exchange_weak(most, now);) {
  }
  return static_cast<std::byte*>(begin) + front;
}

void give_back(void* p, std::size_t front) noexcept {
  if (p == nullptr) return;
  void* begin = static_cast<std::byte*>(p) - front;
  std::size_t size = 0;
  std::memcpy(&size, begin, sizeof(size));
  in_use -= size;
  std::free(begin);
}

std::size_t front_of(std::align_val_t alignment) {
  return std::max(kFront, static_cast<std::size_t>(alignment));
}

}  // namespace

void* operator new(std::size_t size) { return take(size, kFront); }
void operator delete(void* p) noexcept { give_back(p, kFront); }
void operator delete(void* p, std::size_t) noexcept { give_back(p, kFront); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return take(size, front_of(alignment));
}
void operator delete(void* p, std::align_val_t alignment) noexcept {
  give_back(p, front_of(alignment));
}
void operator delete(void* p, std::size_t, std::align_val_t alignment) noexcept {
  give_back(p, front_of(alignment));
}
#endif

namespace ballast::fuzz {

void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> corpus_of(const Target& target) {
  std::vector<fs::path> files;
  const fs::path folder = fs::path(BALLAST_SOURCE_DIR) / "fuzz/corpus" / target.name;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// Runs the target; what it takes is within the promise of docs/trust.md.
void run_within_limits(const Target& target, const std::string& input, const std::string& name) {
  const std::size_t before = in_use;
  most_in_use = before;
  const auto begin = std::chrono::steady_clock::now();
  try {
    target.run(input);
  } catch (const std::bad_alloc&) {  // where memory is limited
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, kSeconds) << name;
  EXPECT_LE(most_in_use - before, 4 * input.size() + (std::size_t{64} << 20)) << name;
}

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, ReplaysItsCorpus) {
  const auto files = corpus_of(GetParam());
  ASSERT_FALSE(files.empty());
  for (const fs::path& file : files) run_within_limits(GetParam(), read(file), file.string());
}

// Deterministic: the same copies in every run.
TEST_P(Fuzz, OutlivesDamagedCopies) {
  const auto begin = std::chrono::steady_clock::now();
  for (const fs::path& file : corpus_of(GetParam())) {
    const std::string good = read(file);
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      run_within_limits(GetParam(), GetParam().mutate(good, seed),
                        file.string() + ", seed " + std::to_string(seed));
    }
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) break;
  }
}

// Nesting of any depth is an error and no recursion without end. Files this large are made here.
TEST_P(Fuzz, OutlivesDeepNesting) {
  const std::string_view openings[] = {"[",
                                       "{\"a\":",
                                       "(",
                                       "{{ (",
                                       "{% if a %}",
                                       "{\"added_tokens\":[[",
                                       "{\"model\":{\"vocab\":[",
                                       "{\"type\":\"Sequence\",\"normalizers\":[",
                                       "{\"type\":\"Sequence\",\"pretokenizers\":["};
  for (const std::string_view opening : openings) {
    for (const std::string_view front :
         {"", "{\"added_tokens\":", "{\"model\":{\"type\":\"BPE\"},\"normalizer\":"}) {
      std::string text(front);
      for (int i = 0; i < 20'000; ++i) text += opening;
      run_within_limits(GetParam(), text, std::string(front) + std::string(opening));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fuzz, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ballast::fuzz
