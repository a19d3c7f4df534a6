// What of integer_dots.h each set of instructions has; there it is said what these do.
//
// Headers of others are included here: within a region of a target they would be part of it.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/fail.h"
#include "gemm/int_gemm.h"
#include "simd/targets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ballast::gemm {
constexpr float kMostActivation = 4095;  ///< in magnitude, as an integer
}

namespace ballast::gemm {
// Activations that four rows as they lie are multiplied with at a time: what registers hold.
namespace avx512 {
constexpr std::size_t kRowColumns = 2;
}
namespace avx2 {
constexpr std::size_t kRowColumns = 4;
}
}  // namespace ballast::gemm

#define BALLAST_INTEGER_KERNELS(set)                                                             \
  namespace ballast::gemm::set {                                                                 \
  void round_to_integers(const float* x, std::size_t n, IntegerSpan* out);                       \
  void round_to_tiles(ConstMatrix x, IntegerTile* out, std::size_t stride);                      \
  void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,               \
                    std::size_t count, std::size_t n, const IntegerSpan* x, std::size_t columns, \
                    float* out, std::size_t out_stride);                                         \
  void round_to_integers(const float* x, std::size_t n, WordSpan* out);                          \
  void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,               \
                    std::size_t count, std::size_t n, const WordSpan* x, std::size_t columns,    \
                    float* out, std::size_t out_stride);                                         \
  void fill_panel(TensorType type, const std::byte* rows, std::size_t row_bytes,                 \
                  std::size_t count, std::size_t n, std::size_t span, std::size_t ahead,         \
                  IntegerPanel& out);                                                            \
  void multiply_panel(TensorType type, const IntegerPanel& panel, const IntegerTile& x,          \
                      std::size_t columns, bool ask, float (*totals)[IntegerPanel::kRows]);      \
  }
BALLAST_INTEGER_KERNELS(avx512)
BALLAST_INTEGER_KERNELS(avx2)
#undef BALLAST_INTEGER_KERNELS

// Only with AVX-512.
namespace ballast::gemm::avx512 {
void round_to_lanes(const float* x, std::size_t n, LaneSpan* out, std::size_t stride);
void integer_lane_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,
                       std::size_t count, std::size_t n, const LaneSpan* x, std::size_t columns,
                       float* out, std::size_t out_stride);
}  // namespace ballast::gemm::avx512
