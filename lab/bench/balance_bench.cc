// BalanceKV's halving: 16,384 tokens of dimension 128, two rounds, one thread. Its floor are the
// multiply-adds of the Gram matrices at the machine's peak, of bfloat16, and of tiles, where
// it has those.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "floors.h"
#include "methods/softmax_balance.h"

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
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double start = thread_seconds();
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
    best = std::min(best, thread_seconds() - start);
  }
  const double rate = gram_flops(kTokens, block) / best,
               peak = std::max({f32_peak(), bf16_peak(), bf16_tile_peak()});
  state.counters["Gflop/s"] = rate * 1e-9;
  state.counters["peak_Gflop/s"] = peak * 1e-9;
  state.counters["of_floor"] = peak / rate;
}
BENCHMARK(BM_Balance)->Arg(64)->Arg(128)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ballast
