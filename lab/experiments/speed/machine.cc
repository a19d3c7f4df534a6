#include "experiments/speed/machine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "ballast/matrix.h"
#include "ballast/threads.h"
#include "base/stopwatch.h"
#include "experiments/speed/roofline.h"
#include "simd/cpu.h"

namespace ballast {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kLess = 16;  // a sanitizer's speed means nothing, and each pass takes it seconds
#else
constexpr int kLess = 1;
#endif
/// Larger than the last-level cache of common processors.
constexpr std::size_t kBytes = (std::size_t{256} << 20) / kLess;
constexpr int kPasses = 16 / kLess;
/// Multiply-adds of a pass; a few milliseconds of work.
constexpr std::size_t kRounds = 2'000'000 / kLess;

/// Seconds of the fastest pass, from the common start to the last thread's end. Threads live over
/// all passes, so that the system can spread them over cores.
template <typename Body>
double fastest(const Body& body) {
  const auto count = static_cast<std::size_t>(threads());
  std::barrier<> together(static_cast<std::ptrdiff_t>(count));
  std::vector<std::array<double, kPasses>> seconds(count);
  const auto work = [&](std::size_t thread) {
    for (double& pass : seconds[thread]) {
      together.arrive_and_wait();
      const Stopwatch watch;
      body(thread, count);
      pass = watch.seconds();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t t = 1; t < count; ++t) others.emplace_back(work, t);
    work(0);
  }
  double best = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < kPasses; ++pass) {
    double slowest = 0;
    for (const auto& thread : seconds) slowest = std::max(slowest, thread[pass]);
    best = std::min(best, slowest);
  }
  return best;
}

double read_bandwidth() {
  const AlignedArray<std::byte> data = allocate_aligned<std::byte>(kBytes);
  std::memset(data.get(), 1, kBytes);
  std::atomic<std::uint64_t> sink = 0;
  const double seconds = fastest([&](std::size_t thread, std::size_t count) {
    const std::size_t part = kBytes / count / kAlignment * kAlignment;
    sink = kernels::read_bytes(data.get() + thread * part, part);
  });
  const auto count = static_cast<std::size_t>(threads());
  return static_cast<double>(kBytes / count / kAlignment * kAlignment * count) / seconds;
}

double flops(double (*multiply_adds)(std::size_t)) {
  std::atomic<double> work = 0;
  const double seconds = fastest([&](std::size_t, std::size_t) { work = multiply_adds(kRounds); });
  return 2.0 * work * threads() / seconds;
}

}  // namespace

Machine measure_machine() {
  Machine m;
  m.threads = static_cast<std::size_t>(threads());
  m.read_bandwidth = read_bandwidth();
  m.f32_flops = flops(kernels::f32_multiply_adds);
  if (has_avx512_bf16()) m.bf16_flops = flops(kernels::bf16_multiply_adds);
  if (has_avx2()) m.int16_flops = flops(kernels::int16_multiply_adds);
  if (has_amx_int8()) m.int8_tile_flops = flops(kernels::int8_tile_multiply_adds);
  if (has_amx_bf16()) m.bf16_tile_flops = flops(kernels::bf16_tile_multiply_adds);
  m.bf16_tiles_refused = amx_bf16_refusal();
  return m;
}

}  // namespace ballast
