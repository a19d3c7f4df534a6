// Millions of tokens through every method with a budget (label `long`): neither what a cache
// counts nor what the process takes may grow.
#include <ctime>

#include "ballast/scoring.h"
#include "cache/streams.h"
#include "resident_memory.h"

namespace ballast::test {
namespace {

constexpr std::size_t kCycle = 8192, kDim = 32;

/// Keys, values and queries that come again and again.
struct Text {
  Matrix keys = random_matrix(kCycle, kDim, 1), values = random_matrix(kCycle, kDim, 2),
         queries = random_matrix(kCycle, kDim, 3);
};

CacheShape shape_of_one_head() {
  CacheShape shape;
  shape.key_dim = shape.value_dim = kDim;
  shape.logits.scale = 0.25f;
  return shape;
}

/// Within 5% of what the process took after the first 10,000 tokens, or so.
void expect_flat(std::size_t before, std::size_t tokens) {
  EXPECT_LE(static_cast<double>(resident_memory()), 1.05 * static_cast<double>(before))
      << "at token " << tokens;
}

class LongStream : public testing::TestWithParam<std::string> {};

TEST_P(LongStream, HoldsItsBudgetForFourMillionTokens) {
  constexpr std::size_t kTokens = 4'000'000, kPart = 100'000;
  Cache cache(shape_of_one_head(), options_of(GetParam() + ":budget=256", Protocol::stream));
  const Text text;
  Matrix out(1, kDim);
  // Twice the entries: what methods may spend on weights, positions, scores and scratch.
  const std::size_t promised = 256 * 2 * kDim * sizeof(float) * 5 / 2;
  std::vector<double> seconds;
  std::size_t settled = 0, resident = 0;
  for (std::size_t done = 0; done < kTokens; done += kPart) {
    const std::clock_t start = std::clock();  // of this process: other programs do not count
    for (std::size_t t = done; t < done + kPart; ++t) {
      const std::size_t i = t % kCycle;
      cache.forward(0, text.keys.view().slice(i, 1), text.values.view().slice(i, 1),
                    text.queries.view().slice(i, 1), out.view());
      if (t == 10'000) resident = resident_memory();
      ASSERT_LE(cache.entries(), 256u) << "token " << t;
      ASSERT_LE(cache.bytes().total(), promised) << "token " << t;
      if (t == kPart) settled = cache.bytes().total();
      if (t > kPart) {
        ASSERT_EQ(cache.bytes().total(), settled) << "token " << t;
      }
      ASSERT_TRUE(std::isfinite(out[0][0])) << "token " << t;
    }
    seconds.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    expect_flat(resident, done + kPart);
  }
  std::printf("%s: %.2f us a token in the first 100,000, %.2f in the last: ratio %.2f\n",
              GetParam().c_str(), seconds.front() * 1e6 / kPart, seconds.back() * 1e6 / kPart,
              seconds.back() / seconds.front());
}

std::vector<std::string> bounded_methods() {
  std::vector<std::string> names;
  for (const MethodInfo* info : methods()) {
    if (info->global_budget || info->needs.fits_values) continue;  // the tests below
    if (info->window_policy != WindowPolicy::all) names.emplace_back(info->name);
  }
  return names;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(0, info.param.find(':'));
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Long, LongStream, testing::ValuesIn(bounded_methods()), name_of);

constexpr std::size_t kMillion = 1'000'000;

// Their fit takes milliseconds at every step: fewer tokens and a longer step.
class LongFit : public testing::TestWithParam<std::string> {};

TEST_P(LongFit, HoldsItsMemoryForAMillionTokens) {
  constexpr std::size_t kPart = 1000;
  Cache cache(shape_of_one_head(), options_of(GetParam(), Protocol::stream));
  const Text text;
  Matrix out(kPart, kDim);
  std::size_t settled = 0, resident = 0;
  for (std::size_t done = 0; done < kMillion; done += kPart) {
    const std::size_t i = done % (kCycle - kPart);
    cache.forward(0, text.keys.view().slice(i, kPart), text.values.view().slice(i, kPart),
                  text.queries.view().slice(i, kPart), out.view());
    ASSERT_LE(cache.entries(), 256u);
    if (done + kPart == 10'000) settled = cache.bytes().total(), resident = resident_memory();
    if (done < 10'000) continue;
    ASSERT_EQ(cache.bytes().total(), settled) << "token " << done;
    expect_flat(resident, done);
  }
}

std::vector<std::string> fitted_methods() {
  std::vector<std::string> out;
  for (const MethodInfo* info : methods()) {
    if (!info->global_budget && info->needs.fits_values)
      out.push_back(std::string(info->name) + ":budget=256,observe=16,step=128");
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Long, LongFit, testing::ValuesIn(fitted_methods()), name_of);

// Methods with one budget for the whole cache: chunks are read, read again and divide it anew.
class LongChunks : public testing::TestWithParam<std::string> {};

TEST_P(LongChunks, HoldsItsMemoryForAMillionTokens) {
  constexpr std::size_t kBudget = 48'000, kChunk = 256, kRow = 2 * kDim * sizeof(float);
  Cache cache(shape_of_one_head(),
              options_of(GetParam() + ":bytes=48000B,chunk=256", Protocol::stream));
  const Text text;
  Matrix out(kCycle, kDim);
  const auto again = [&] {
    const std::size_t n = scoring_of(cache).chunk_tokens();
    scoring_of(cache).start_replay(0, {});
    for (std::size_t t = 0; t < n; t += kChunk) {
      const std::size_t count = std::min(kChunk, n - t);
      scoring_of(cache).replay(0, text.keys.view().slice(t, count),
                               text.values.view().slice(t, count),
                               text.queries.view().slice(t, count), {}, out.view().slice(t, count));
    }
    scoring_of(cache).end_chunk();
  };
  std::size_t resident = 0, at = 0;
  while (cache.tokens() < kMillion) {
    if (scoring_of(cache).chunk_room() == 0) {
      again();
      ASSERT_LE(cache.bytes().used(), kBudget);
      if (cache.tokens() > 10'000) {
        if (resident == 0) resident = resident_memory();
        expect_flat(resident, cache.tokens());
      }
    }
    const std::size_t n = std::min<std::size_t>(scoring_of(cache).chunk_room(), 128);
    at = (at + n) % (kCycle - n);
    cache.forward(0, text.keys.view().slice(at, n), text.values.view().slice(at, n),
                  text.queries.view().slice(at, n), out.view().slice(0, n));
    ASSERT_LE(cache.bytes().used(), kBudget + kChunk * (kRow + 64));
  }
}

std::vector<std::string> whole_methods() {
  std::vector<std::string> out;
  for (const MethodInfo* info : methods()) {
    if (info->global_budget && info->needs.reads_again()) out.emplace_back(info->name);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Long, LongChunks, testing::ValuesIn(whole_methods()), name_of);

}  // namespace
}  // namespace ballast::test
