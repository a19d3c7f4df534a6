// Matrix products against what the machine allows.
//
// Decoding (m = 1, or a batch of 4) reads each weight once: the bound is a plain read of the same
// bytes by the same threads. Copies of the matrix exceed the caches and are visited in turn, so
// that every byte comes from memory; a plain read follows each pass. A prompt (m = 256) is bound by
// arithmetic: the bound is the rate of int8 products by tiles over those that the type takes, else
// of bfloat16 dot products where the processor has them, else of int16 ones, else of multiply-adds.
// The best visit of each counts, which keeps other programs on the machine out of the ratios.
//
// k × n: 768 × 2,048 and 4,096 × 4,096.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ballast/threads.h"
#include "base/thread_pool.h"
#include "experiments/speed/roofline.h"
#include "gemm/matmul.h"
#include "gemm/tile_gemm.h"
#include "simd/cpu.h"
#include "target.h"

namespace ballast {
namespace {

constexpr std::size_t kBytesBeyondCaches = std::size_t{160} << 20;
constexpr double kNever = std::numeric_limits<double>::infinity();

using Clock = std::chrono::steady_clock;

template <typename Body>
double seconds(Body&& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Matrix random_matrix(std::size_t rows, std::size_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix m(rows, cols);
  for (std::size_t i = 0; i < rows * cols; ++i) m.data()[i] = normal(random);
  return m;
}

/// Copies of one encoded matrix, enough to exceed the caches, in pages of 2 MiB or 4 KiB. Model
/// files lie in large pages where the system has them.
struct Weights {
  Weights(TensorType type, std::size_t rows, std::size_t cols, std::size_t beyond, bool large) {
    const Matrix elements = random_matrix(rows, cols, 1);
    const std::vector<std::byte> one = encode(type, {elements.data(), rows * cols});
    const std::size_t copies = beyond / one.size() + 1;
    bytes = static_cast<std::byte*>(std::aligned_alloc(kPage, up(copies * one.size())));
    ::madvise(bytes, up(copies * one.size()), large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (std::size_t i = 0; i < copies; ++i) {
      std::byte* at = bytes + i * one.size();
      std::memcpy(at, one.data(), one.size());
      linears.emplace_back(TensorView{"w", type, {rows, cols}, {at, one.size()}});
    }
  }
  ~Weights() { std::free(bytes); }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  static constexpr std::size_t kPage = std::size_t{2} << 20;
  static std::size_t up(std::size_t n) { return (n + kPage - 1) / kPage * kPage; }

  std::byte* bytes;
  std::vector<Linear> linears;
};

/// Reads every byte once, each thread its part.
void read_all(const std::byte* data, std::size_t bytes) {
  const auto count = static_cast<std::size_t>(threads());
  const std::size_t part = bytes / count / 64 * 64;
  parallel_for(count, [&](std::size_t t) {
    const std::byte* p = data + t * part;
    std::uint64_t sums[8] = {};
    for (std::size_t i = 0; i + 64 <= part; i += 64) {
      std::uint64_t line[8];
      std::memcpy(line, p + i, 64);
      for (int j = 0; j < 8; ++j) sums[j] += line[j];
    }
    benchmark::DoNotOptimize(sums);
  });
}

void decode(benchmark::State& state, TensorType type) {
  const auto cols = static_cast<std::size_t>(state.range(0));
  const auto m = static_cast<std::size_t>(state.range(1));
  set_threads(static_cast<int>(state.range(2)));
  const std::size_t rows = cols == 768 ? 2048 : 4096;
  const Weights weights(type, rows, cols, kBytesBeyondCaches, state.range(3) != 4);
  const Matrix x = random_matrix(m, cols, 2);
  Matrix out(m, rows);
  const std::size_t bytes = weights.linears[0].row_bytes * rows;
  double best = kNever, floor = kNever;
  for (auto _ : state) {
    double total = 0.0;
    for (const Linear& w : weights.linears) {
      const double s = seconds([&] { multiply(x.view(), w, out.view()); });
      best = std::min(best, s);
      total += s;
    }
    state.SetIterationTime(total);
    for (const Linear& w : weights.linears) {
      floor = std::min(floor, seconds([&] { read_all(w.data, bytes); }));
    }
  }
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["read_GB/s"] = static_cast<double>(bytes) / floor * 1e-9;
  state.counters["of_read"] = floor / best;
}

/// Peak floating-point or integer operations per second of all threads. By tiles, a type takes
/// several int8 products for one of its own.
double peak_flops(TensorType type) {
  constexpr std::size_t kRounds = 1 << 16;
  const int by_tiles = has_amx_int8() ? tile_products(type) : 0;
  const auto loop = by_tiles > 0        ? kernels::int8_tile_multiply_adds
                    : has_avx512_bf16() ? kernels::bf16_multiply_adds
                    : has_avx2()        ? kernels::int16_multiply_adds
                                        : kernels::f32_multiply_adds;
  const auto count = static_cast<std::size_t>(threads());
  std::atomic<double> work = 0.0;
  const double s =
      seconds([&] { parallel_for(count, [&](std::size_t) { work = loop(kRounds); }); });
  return 2.0 * work * static_cast<double>(count) / s / std::max(1, by_tiles);
}

void prompt(benchmark::State& state, TensorType type) {
  const auto cols = static_cast<std::size_t>(state.range(0));
  const auto m = static_cast<std::size_t>(state.range(1));
  set_threads(static_cast<int>(state.range(2)));
  const std::size_t rows = cols == 768 ? 2048 : 4096;
  const Weights weights(type, rows, cols, 0, true);
  const Matrix x = random_matrix(m, cols, 2);
  Matrix out(m, rows);
  double best = kNever, peak = 0.0;
  for (auto _ : state) {
    const double s = seconds([&] { multiply(x.view(), weights.linears[0], out.view()); });
    state.SetIterationTime(s);
    best = std::min(best, s);
    peak = std::max(peak, peak_flops(type));
  }
  const double flops = 2.0 * static_cast<double>(m * rows * cols);
  state.counters["Gflop/s"] = flops / best * 1e-9;
  state.counters["peak_Gflop/s"] = peak * 1e-9;
  state.counters["of_peak"] = flops / best / peak;
}

void register_all() {
  for (TensorType type : {TensorType::q4_0, TensorType::q4_k, TensorType::q5_k, TensorType::q6_k,
                          TensorType::q8_0, TensorType::bf16, TensorType::f16, TensorType::f32}) {
    auto add = [&](const char* kind, auto function, std::initializer_list<int> ms,
                   std::initializer_list<int> pages, double least) {
      const std::string name = fmt::format("{}/{}", kind, to_string(type));
      auto* bench = benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { function(state, type); });
      bench->ArgNames({"width", "m", "threads", "pages_KiB"})->UseManualTime()->MinTime(least);
      bench->Unit(benchmark::kMillisecond);
      for (int width : {768, 4096}) {
        for (int m : ms) {
          for (int threads : {1, 2}) {
            for (int size : pages) bench->Args({width, m, threads, size});
          }
        }
      }
    };
    add("decode", decode, {1}, {4, 2048}, 0.1);
    add("decode", decode, {4}, {2048}, 0.1);
    add("prompt", prompt, {256}, {2048}, 0.2);
  }
}

const bool kRegistered = (register_all(), true);

}  // namespace
}  // namespace ballast
