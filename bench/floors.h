// What this machine does at best, for one thread.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>

#include "simd/cpu.h"
#include "simd/roofline.h"

namespace ballast {

/// Processor time of this thread, in seconds: other programs on the machine take turns with it.
/// Waiting for memory counts.
inline double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Operations a second of a loop of kernels/peaks.h, the best of some.
inline double peak_flops(double (*multiply_adds)(std::size_t)) {
  double best = 0.0;
  for (int i = 0; i < 20; ++i) {
    const double start = thread_seconds();
    const double numbers = multiply_adds(std::size_t{1} << 18);
    best = std::max(best, 2.0 * numbers / (thread_seconds() - start));
  }
  return best;
}

/// Of float32, and of bfloat16: 0 where the processor has no such products.
inline double f32_peak() { return peak_flops(kernels::f32_multiply_adds); }
inline double bf16_peak() {
  return has_avx512_bf16() ? peak_flops(kernels::bf16_multiply_adds) : 0.0;
}

}  // namespace ballast
