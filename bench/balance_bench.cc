// BalanceKV's halving: 16,384 tokens of dimension 128, blocks of 256, two rounds, one thread;
// beside it the machine's float32 peak, which bounds what the Gram matrices can cost.
#include <benchmark/benchmark.h>

#include <cmath>
#include <numeric>
#include <random>

#include "summary/softmax_balance.h"

namespace ballast {
namespace {

constexpr std::size_t kTokens = 16384;
constexpr std::size_t kDim = 128;
constexpr std::size_t kRounds = 2;

/// Multiplications and additions of the Gram matrices' lower triangles.
double gram_flops(std::size_t tokens, std::size_t block) {
  double flops = 0;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const auto n = static_cast<double>(tokens >> round);
    flops += n * static_cast<double>(block - 1) / 2 * 2 * (kDim + kDim);
  }
  return flops;
}

Rows clustered(std::size_t count, float norm, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Rows rows(StorageType::f32, kDim, count);
  std::vector<float> row(kDim);
  for (std::size_t i = 0; i < count; ++i) {
    for (float& x : row) x = normal(rng);
    const float size = std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0f));
    for (float& x : row) x *= norm / size;
    rows.set(i, row);
  }
  return rows;
}

void BM_Balance(benchmark::State& state) {
  const auto block = static_cast<std::size_t>(state.range(0));
  const Rows keys = clustered(kTokens, 15.5f, 1), values = clustered(kTokens, 3.3f, 2);
  BalanceOptions options;
  options.block = block;
  options.scale = 1.0 / std::sqrt(static_cast<double>(kDim));
  SoftmaxBalance rule(options);
  std::vector<std::uint8_t> dropped(kTokens);
  WeightedTokens tokens;
  tokens.keys = keys.view(0, kTokens);
  tokens.values = values.view(0, kTokens);
  tokens.reserve(kTokens);
  for (auto _ : state) {
    tokens.clear();
    for (std::size_t i = 0; i < kTokens; ++i) {
      tokens.add(static_cast<std::uint32_t>(i), static_cast<Position>(i), 0.0f, 0.0f);
    }
    for (std::size_t round = 0; round < kRounds; ++round) {
      rule.reduce(tokens, tokens.size() / 2, static_cast<std::uint32_t>(round),
                  {dropped.data(), tokens.size()});
      tokens.remove(dropped);
    }
    benchmark::DoNotOptimize(tokens.rows.data());
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(gram_flops(kTokens, block), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Balance)->Arg(64)->Arg(128)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

/// Multiply-adds that wait for nothing, in vectors of the given number of floats.
#define BALLAST_SPIN(name, features, floats)                                              \
  __attribute__((target(features), noinline)) float name(std::size_t steps) {             \
    typedef float Wide __attribute__((vector_size(4 * (floats))));                        \
    Wide sums[12] = {}, factor = {}, term = {};                                           \
    for (int i = 0; i < (floats); ++i) factor[i] = 0.5f, term[i] = static_cast<float>(i); \
    for (int i = 0; i < 12; ++i) sums[i] += static_cast<float>(i);                        \
    for (std::size_t s = 0; s < steps; ++s) {                                             \
      _Pragma("GCC unroll 12") for (Wide & sum : sums) sum = sum * factor + term;         \
    }                                                                                     \
    for (int i = 1; i < 12; ++i) sums[0] += sums[i];                                      \
    return sums[0][0];                                                                    \
  }
BALLAST_SPIN(spin_avx512, "avx512f,fma", 16)
BALLAST_SPIN(spin_avx2, "avx2,fma", 8)

void BM_Peak(benchmark::State& state) {
  constexpr std::size_t kSteps = 1 << 20;
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(wide ? spin_avx512(kSteps) : spin_avx2(kSteps));
  }
  state.counters["FLOP/s"] = benchmark::Counter(2.0 * 12 * (wide ? 16 : 8) * kSteps,
                                                benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Peak)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ballast
