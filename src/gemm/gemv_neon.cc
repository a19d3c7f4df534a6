// Integer GEMV with NEON, by products that every ARM64 processor has.
#include "gemm/kernels.h"

#if defined(__aarch64__)

#include "simd/inline.h"

#define BALLAST_ISA neon
namespace ballast::gemm::neon {

/// sums += products of int8. Two of at most 128 · 64 fit int16.
BALLAST_INLINE int32x4_t dot_add_8(int32x4_t sums, int8x16_t a, int8x16_t b) {
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
  return vpadalq_s16(sums, vmlal_high_s8(low, a, b));
}

}  // namespace ballast::gemm::neon
#include "gemm/neon-inl.h"

#endif
