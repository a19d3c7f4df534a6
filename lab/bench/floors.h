// The peak arithmetic rate of one thread.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>

#include "experiments/speed/roofline.h"
#include "simd/cpu.h"

namespace ballast {

/// CPU time of this thread in seconds. It excludes other programs' turns and includes waits for
/// memory.
inline double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Floating-point operations a second of a loop of experiments/speed/roofline.h, the best of 20
/// runs.
inline double peak_flops(double (*multiply_adds)(std::size_t)) {
  double best = 0.0;
  for (int i = 0; i < 20; ++i) {
    const double start = thread_seconds();
    const double elements = multiply_adds(std::size_t{1} << 18);
    best = std::max(best, 2.0 * elements / (thread_seconds() - start));
  }
  return best;
}

/// Of tiles, in bfloat16 and in int8; 0 where tiles are not used.
inline double bf16_tile_peak() {
  return has_amx_bf16() ? peak_flops(kernels::bf16_tile_multiply_adds) : 0.0;
}
inline double int8_tile_peak() {
  return has_amx_int8() ? peak_flops(kernels::int8_tile_multiply_adds) : 0.0;
}

/// For float32, and for bfloat16; 0 where the processor has no bfloat16 instructions.
inline double f32_peak() { return peak_flops(kernels::f32_multiply_adds); }
inline double bf16_peak() {
  return has_avx512_bf16() ? peak_flops(kernels::bf16_multiply_adds) : 0.0;
}

}  // namespace ballast
