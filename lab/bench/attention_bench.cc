// Attention against what the machine allows: decoding against the bandwidth of reading the same
// bytes, prompts against the rate of fused multiply-adds.
//
// Decode: one token's queries over 16384 entries, on as many heads as exceed the caches, so that
// every byte comes from memory. By turns, each time with another head: all entries, a quarter of
// them (`quarter`: how many times as fast), a plain read of the same bytes and, beside several
// queries or weights, one query without weights (`cost`: how much longer than that). So all of them
// see the same machine, which changes from one second to the next. Medians count: the best would be
// a head that a cache had kept in part, or a moment when memory gave more.
//
// Cached: the same over 512 entries again and again, on one thread: what arithmetic alone allows;
// the best pass counts.
//
// Turned: what keys about a turned mean cost beside keys about none.
//
// Prompt: causal, beside the rates of float32 and bf16 multiply-adds that wait for nothing, and
// where tiles multiply the type beside their rate over the products that it takes (`of_tiles`);
// `attention_sum` is what observing the attention of every entry adds.
//
// BALLAST_TARGET=avx2 in the environment: as on a processor without AVX-512; avx512: without AMX.
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "attention/kernels/amx.h"
#include "ballast/attention.h"
#include "ballast/row_mean.h"
#include "ballast/threads.h"
#include "base/thread_pool.h"
#include "floors.h"
#include "storage/gap_code.h"
#include "target.h"

namespace ballast {
namespace {

constexpr std::size_t kEntries = 16384;
constexpr std::size_t kBytesBeyondCaches = std::size_t{192} << 20;
constexpr std::size_t kBytesOfTurn = std::size_t{8} << 20;

// Of several threads, time.
double now(std::size_t threads = 1) {
  if (threads == 1) return thread_seconds();
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_since(double start) { return now() - start; }

double median(std::vector<double>& x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
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

// Reads every byte once, in eight streams of additions.
std::uint64_t read_all(const void* data, std::size_t bytes) {
  const auto* words = static_cast<const std::uint64_t*>(data);
  const std::size_t count = bytes / 8;
  std::uint64_t sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (std::uint64_t sum : sums) total += sum;
  return total;
}

std::uint64_t read_all(const Rows& rows) {
  const auto view = rows.view(0, rows.capacity());
  const std::size_t scales = row_scales(view.type, view.dim) * sizeof(std::uint16_t);
  return read_all(view.data, view.rows * view.stride) + read_all(view.scales, view.rows * scales);
}

void decode(benchmark::State& state, StorageType type) {
  const auto dim = static_cast<std::size_t>(state.range(0));
  const auto group = static_cast<std::size_t>(state.range(1));
  const bool weighted = state.range(2) != 0;
  const auto threads = static_cast<std::size_t>(state.range(3));
  set_threads(static_cast<int>(threads));
  const std::vector<Head> heads = make_heads(type, dim);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  Matrix queries(group, dim);
  for (std::size_t i = 0; i < group * dim; ++i) queries.data()[i] = normal(random);
  const std::vector<float> log_weights(kEntries, 0.25f);
  Logits logits;
  logits.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const auto attend_to = [&](std::size_t h, std::size_t entries, std::size_t count,
                             bool with_weights) {
    Matrix out(count, dim);
    Segment segment;
    segment.keys = heads[h].keys.view(0, entries);
    segment.values = heads[h].values.view(0, entries);
    if (with_weights) segment.log_weights = log_weights.data();
    attend({queries.view().slice(0, count), {}, {}}, {&segment, 1}, logits, out.view());
    benchmark::DoNotOptimize(out.data());
  };
  // A turn: so many heads a thread that its start, when threads are woken, does not count.
  const std::size_t head_bytes = heads[0].keys.bytes() + heads[0].values.bytes();
  const std::size_t together = std::max<std::size_t>(1, kBytesOfTurn / head_bytes);
  const std::size_t turns = heads.size() / (threads * together);
  const auto time = [&](std::vector<double>& times, std::size_t turn, const auto& body) {
    const std::size_t first = turn % turns * threads * together;
    const double start = now(threads);
    parallel_for(threads, [&](std::size_t t) {
      for (std::size_t i = 0; i < together; ++i) body(first + t * together + i);
    });
    times.push_back(now(threads) - start);
    return times.back();
  };
  const double bytes = static_cast<double>(threads * together * head_bytes);
  const bool plain = group == 1 && !weighted;
  std::vector<double> all, quarter, read, one;
  for (auto _ : state) {
    double total = 0.0;
    for (std::size_t t = 0; t < turns; ++t) {
      total += time(all, t, [&](std::size_t h) { attend_to(h, kEntries, group, weighted); });
      time(quarter, t + turns / 4,
           [&](std::size_t h) { attend_to(h, kEntries / 4, group, weighted); });
      time(read, t + turns / 2, [&](std::size_t h) {
        std::uint64_t sum = read_all(heads[h].keys) + read_all(heads[h].values);
        benchmark::DoNotOptimize(sum);
      });
      if (plain) continue;
      time(one, t + turns * 3 / 4, [&](std::size_t h) { attend_to(h, kEntries, 1, false); });
    }
    state.SetIterationTime(total);
  }
  const double seconds = median(all), floor = median(read);
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  state.counters["read_GB/s"] = bytes / floor * 1e-9;
  state.counters["of_read"] = floor / seconds;
  state.counters["quarter"] = seconds / median(quarter);
  if (!plain) state.counters["cost"] = seconds / median(one) - 1.0;
}

void cached(benchmark::State& state, StorageType type) {
  const auto dim = static_cast<std::size_t>(state.range(0));
  const auto group = static_cast<std::size_t>(state.range(1));
  constexpr std::size_t kFew = 512;
  set_threads(1);
  std::mt19937 random(1);
  const Rows keys = random_rows(type, kFew, dim, random),
             values = random_rows(type, kFew, dim, random);
  std::normal_distribution<float> normal;
  Matrix queries(group, dim), out(group, dim);
  for (std::size_t i = 0; i < group * dim; ++i) queries.data()[i] = normal(random);
  Segment segment;
  segment.keys = keys.view(0, kFew);
  segment.values = values.view(0, kFew);
  Logits logits;
  logits.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  constexpr int kPasses = 16;
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double start = now();
    for (int i = 0; i < kPasses; ++i)
      attend({queries.view(), {}, {}}, {&segment, 1}, logits, out.view());
    benchmark::DoNotOptimize(out.data());
    best = std::min(best, seconds_since(start));
  }
  state.counters["GB/s"] =
      kPasses * static_cast<double>(keys.bytes() + values.bytes()) / best * 1e-9;
}

// One token's queries over 16384 entries about a mean that turns, and about none, by turns
// (`over_none`: time over time). evicted: of every two tokens one is kept, and positions are coded.
void turned(benchmark::State& state, StorageType type) {
  const auto dim = static_cast<std::size_t>(state.range(0));
  const auto group = static_cast<std::size_t>(state.range(1));
  const bool evicted = state.range(2) != 0;
  constexpr std::size_t kHeads = 8;
  set_threads(1);
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  Rotary rotary;
  for (std::size_t f = 0; f < dim / 2; ++f) {
    rotary.frequencies.push_back(static_cast<float>(
        std::pow(1e6, -2.0 * static_cast<double>(f) / static_cast<double>(dim))));
  }
  std::vector<float> mean(dim);
  for (float& x : mean) x = 30.0f * normal(random);
  std::vector<Position> positions;
  for (Position p = 0; positions.size() < kEntries; ++p) {
    if (!evicted || random() % 2 == 0) positions.push_back(p);
  }
  std::vector<std::uint8_t> code(gap_bytes(positions));
  encode_gaps(positions, code.data());
  std::vector<Head> heads;
  for (std::size_t h = 0; h < kHeads; ++h) {
    heads.push_back(
        {random_rows(type, kEntries, dim, random), random_rows(type, kEntries, dim, random)});
  }
  Matrix queries(group, dim), out(group, dim);
  for (std::size_t i = 0; i < group * dim; ++i) queries.data()[i] = normal(random);
  Logits logits;
  logits.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const RowMean about(mean, rotary);
  std::vector<double> with, without;
  for (auto _ : state) {
    for (std::size_t i = 0; i < 2 * kHeads; ++i) {
      Segment segment;
      segment.keys = heads[i / 2].keys.view(0, kEntries);
      segment.values = heads[i / 2].values.view(0, kEntries);
      if (i % 2 == 0) segment.keys.mean = &about;
      if (evicted) {
        segment.keys.gaps = code.data();
      } else {
        segment.keys.first_position = 0;
      }
      const double start = now();
      attend({queries.view(), {}, {}}, {&segment, 1}, logits, out.view());
      benchmark::DoNotOptimize(out.data());
      (i % 2 == 0 ? with : without).push_back(seconds_since(start));
    }
  }
  state.counters["over_none"] = median(with) / median(without);
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
  double best_with_mass = best;
  std::vector<float> attention_sum(n);
  for (auto _ : state) {
    double start = now();
    attend({queries.view(), positions, {}}, {&segment, 1}, logits, out.view());
    const double seconds = seconds_since(start);
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
    start = now();
    attend_with_attention_sum({queries.view(), positions, {}}, {&segment, 1}, logits, out.view(),
                              attention_sum);
    best_with_mass = std::min(best_with_mass, seconds_since(start));
  }
  // Two products of dim for each visible pair.
  const double pairs = 0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
  const double flops = pairs * static_cast<double>(group * dim) * 4.0;
  state.counters["Gflop/s"] = flops / best * 1e-9;
  state.counters["mass"] = best_with_mass / best - 1.0;
  state.counters["of_f32"] = flops / best / f32_peak();
  if (const double peak = bf16_peak(); peak > 0) state.counters["of_bf16"] = flops / best / peak;
  const double products =
      0.5 * (kernels::amx::tile_products(type, true) + kernels::amx::tile_products(type, false));
  const double tiles = products == 0               ? 0.0
                       : type == StorageType::bf16 ? bf16_tile_peak()
                                                   : int8_tile_peak();
  if (tiles > 0) state.counters["of_tiles"] = flops * products / best / tiles;
}

void decode_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dim", "group", "weighted", "threads"});
  for (int threads : {1, 2}) {
    for (int dim : {128, 64}) {
      for (int group : {1, 4}) bench->Args({dim, group, 0, threads});
    }
    bench->Args({128, 1, 1, threads});
  }
  bench->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

void prompt_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "dim", "group"})->Args({2048, 128, 4})->Args({2048, 64, 3});
  bench->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

void cached_arguments(benchmark::internal::Benchmark* b) {
  b->ArgNames({"dim", "group"})->ArgsProduct({{128, 64}, {1, 4}})->MinTime(0.2);
}

void turned_arguments(benchmark::internal::Benchmark* b) {
  b->ArgNames({"dim", "group", "evicted"})->ArgsProduct({{128, 64}, {1, 7}, {0, 1}})->MinTime(0.3);
}

BENCHMARK_CAPTURE(decode, f32, StorageType::f32)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, bf16, StorageType::bf16)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, f16, StorageType::f16)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, int8, StorageType::int8)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, int4, StorageType::int4)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, q4, StorageType::q4)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, q3, StorageType::q3)->Apply(decode_arguments);
BENCHMARK_CAPTURE(decode, q2, StorageType::q2)->Apply(decode_arguments);
BENCHMARK_CAPTURE(cached, f32, StorageType::f32)->Apply(cached_arguments);
BENCHMARK_CAPTURE(cached, bf16, StorageType::bf16)->Apply(cached_arguments);
BENCHMARK_CAPTURE(cached, f16, StorageType::f16)->Apply(cached_arguments);
BENCHMARK_CAPTURE(cached, int8, StorageType::int8)->Apply(cached_arguments);
BENCHMARK_CAPTURE(cached, int4, StorageType::int4)->Apply(cached_arguments);
BENCHMARK_CAPTURE(cached, q4, StorageType::q4)->Apply(cached_arguments);
BENCHMARK_CAPTURE(cached, q3, StorageType::q3)->Apply(cached_arguments);
BENCHMARK_CAPTURE(cached, q2, StorageType::q2)->Apply(cached_arguments);
BENCHMARK_CAPTURE(turned, q4, StorageType::q4)->Apply(turned_arguments);
BENCHMARK_CAPTURE(turned, q2, StorageType::q2)->Apply(turned_arguments);
BENCHMARK_CAPTURE(turned, int4, StorageType::int4)->Apply(turned_arguments);
BENCHMARK_CAPTURE(prompt, f32, StorageType::f32)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, bf16, StorageType::bf16)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, f16, StorageType::f16)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, int8, StorageType::int8)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, int4, StorageType::int4)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, q4, StorageType::q4)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, q3, StorageType::q3)->Apply(prompt_arguments);
BENCHMARK_CAPTURE(prompt, q2, StorageType::q2)->Apply(prompt_arguments);

}  // namespace
}  // namespace ballast
