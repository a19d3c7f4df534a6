// Four million tokens through every method with a budget (label `long`).
#include <ctime>

#include "cache/streams.h"

namespace ballast::test {
namespace {

class LongStream : public testing::TestWithParam<std::string> {};

TEST_P(LongStream, HoldsItsBudgetForFourMillionTokens) {
  constexpr std::size_t kTokens = 4'000'000, kPart = 100'000, kCycle = 8192, kDim = 32;
  CacheShape shape;
  shape.key_dim = shape.value_dim = kDim;
  shape.logits.scale = 0.25f;
  CacheOptions options;
  options.policy = Policy::parse(GetParam() + ":budget=256");
  options.protocol = Protocol::stream;
  Cache cache(shape, options);
  const Matrix keys = random_matrix(kCycle, kDim, 1), values = random_matrix(kCycle, kDim, 2),
               queries = random_matrix(kCycle, kDim, 3);
  Matrix out(1, kDim);
  // Twice the entries: what methods may spend on weights, positions, scores and scratch.
  const std::size_t promised = 256 * 2 * kDim * sizeof(float) * 5 / 2;
  std::vector<double> seconds;
  std::size_t settled = 0;
  for (std::size_t done = 0; done < kTokens; done += kPart) {
    const std::clock_t start = std::clock();  // of this process: other programs do not count
    for (std::size_t t = done; t < done + kPart; ++t) {
      const std::size_t i = t % kCycle;
      cache.forward(0, keys.view().slice(i, 1), values.view().slice(i, 1),
                    queries.view().slice(i, 1), out.view());
      ASSERT_LE(cache.entries(), 256u) << "token " << t;
      ASSERT_LE(cache.bytes().total(), promised) << "token " << t;
      if (t == kPart) settled = cache.bytes().total();
      if (t > kPart) {
        ASSERT_EQ(cache.bytes().total(), settled) << "token " << t;
      }
      ASSERT_TRUE(std::isfinite(out[0][0])) << "token " << t;
    }
    seconds.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::printf("%s: %.2f us a token in the first 100,000, %.2f in the last: ratio %.2f\n",
              GetParam().c_str(), seconds.front() * 1e6 / kPart, seconds.back() * 1e6 / kPart,
              seconds.back() / seconds.front());
}

std::vector<std::string> bounded_methods() {
  std::vector<std::string> names;
  for (const MethodInfo* info : methods()) {
    if (info->whole_cache) continue;  // tests/cache/replay_test.cc
    // Fitting values takes milliseconds at every step, and its prefill is what is published.
    if (info->attention_stats.queries) continue;
    if (info->window_policy != WindowPolicy::all) names.emplace_back(info->name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Long, LongStream, testing::ValuesIn(bounded_methods()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ballast::test
