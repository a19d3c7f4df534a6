// Attention against what the machine allows: decoding against the bandwidth of reading the same
// bytes, prompts against the rate of fused multiply-adds.
//
// Decode: one token's queries over 16384 entries, on as many heads as exceed the caches, so that
// every byte comes from memory. Each pass is followed by a plain read of the same bytes; the best
// head of each counts, which keeps other programs on the machine out of the ratio.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "ballast/attention.h"

namespace ballast {
namespace {

constexpr std::size_t kEntries = 16384;
constexpr std::size_t kBytesBeyondCaches = std::size_t{192} << 20;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Head {
  Rows keys, values;
};

Rows random_rows(StorageType type, std::size_t n, std::size_t dim, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(dim + 97);
  for (float& x : numbers) x = normal(random);
  Rows rows(type, dim, n);
  for (std::size_t i = 0; i < n; ++i) {
    rows.set(i, std::span(numbers).subspan(random() % 97, dim));
  }
  return rows;
}

std::vector<Head> make_heads(StorageType type, std::size_t dim) {
  std::mt19937 random(1);
  std::vector<Head> heads;
  std::size_t bytes = 0;
  while (bytes < kBytesBeyondCaches) {
    heads.push_back(
        {random_rows(type, kEntries, dim, random), random_rows(type, kEntries, dim, random)});
    bytes += heads.back().keys.bytes() + heads.back().values.bytes();
  }
  return heads;
}

// Reads every byte once, in four streams of additions.
std::uint64_t read_all(const Rows& rows) {
  const auto view = rows.view(0, rows.capacity());
  const auto* words = reinterpret_cast<const std::uint64_t*>(view.data);
  const std::size_t count = view.rows * view.stride / 8;
  std::uint64_t sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (std::uint64_t sum : sums) total += sum;
  return total;
}

void decode(benchmark::State& state, StorageType type) {
  const auto dim = static_cast<std::size_t>(state.range(0));
  const auto group = static_cast<std::size_t>(state.range(1));
  const bool weighted = state.range(2) != 0;
  const std::vector<Head> heads = make_heads(type, dim);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  Matrix queries(group, dim), out(group, dim);
  for (std::size_t i = 0; i < group * dim; ++i) queries.data()[i] = normal(random);
  std::vector<float> log_weights(kEntries, 0.25f);
  Logits logits;
  logits.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const double bytes = static_cast<double>(heads[0].keys.bytes() + heads[0].values.bytes());
  double best = std::numeric_limits<double>::infinity();
  double floor = best;
  for (auto _ : state) {
    double total = 0.0;
    for (const Head& head : heads) {
      const auto start = Clock::now();
      Segment segment;
      segment.keys = head.keys.view(0, kEntries);
      segment.values = head.values.view(0, kEntries);
      if (weighted) segment.log_weights = log_weights.data();
      attend({queries.view(), {}, {}}, {&segment, 1}, logits, out.view());
      const double seconds = seconds_since(start);
      total += seconds;
      best = std::min(best, seconds);
    }
    state.SetIterationTime(total);
    for (const Head& head : heads) {
      const auto start = Clock::now();
      std::uint64_t sum = read_all(head.keys) + read_all(head.values);
      benchmark::DoNotOptimize(sum);
      floor = std::min(floor, seconds_since(start));
    }
  }
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["read_GB/s"] = bytes / floor * 1e-9;
  state.counters["of_read"] = floor / best;
}

// A causal prompt of n tokens and a group of query heads.
void prompt(benchmark::State& state, StorageType type) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto dim = static_cast<std::size_t>(state.range(1));
  const auto group = static_cast<std::size_t>(state.range(2));
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const Rows keys = random_rows(type, n, dim, random);
  const Rows values = random_rows(type, n, dim, random);
  Matrix queries(n * group, dim), out(n * group, dim);
  for (std::size_t i = 0; i < n * group * dim; ++i) queries.data()[i] = normal(random);
  std::vector<Position> positions;
  for (std::size_t i = 0; i < n * group; ++i) positions.push_back(static_cast<Position>(i / group));
  Segment segment;
  segment.keys = keys.view(0, n);
  segment.values = values.view(0, n);
  segment.first_position = 0;
  Logits logits;
  logits.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const auto start = Clock::now();
    attend({queries.view(), positions, {}}, {&segment, 1}, logits, out.view());
    const double seconds = seconds_since(start);
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  // Two products of dim for each visible pair.
  const double pairs = 0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
  const double flops = pairs * static_cast<double>(group * dim) * 4.0;
  state.counters["Gflop/s"] = flops / best * 1e-9;
}

void decode_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dim", "group", "weighted"});
  for (int dim : {128, 64}) {
    for (int group : {1, 4}) bench->Args({dim, group, 0});
  }
  bench->Args({128, 1, 1});
  bench->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

void prompt_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "dim", "group"})->Args({1024, 128, 1})->Args({1024, 64, 4});
  bench->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

BENCHMARK_CAPTURE(decode, f32, StorageType::f32)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, bf16, StorageType::bf16)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, f16, StorageType::f16)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, int8, StorageType::int8)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, int4, StorageType::int4)->Apply(decode_arguments);
BENCHMARK_CAPTURE(prompt, f32, StorageType::f32)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, bf16, StorageType::bf16)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, int8, StorageType::int8)->Apply(prompt_arguments);

}  // namespace
}  // namespace ballast
