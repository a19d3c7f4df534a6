// Integer GEMV with NEON's dot products of bytes (SDOT). It needs processor_has_sdot().
#include "gemm/kernels.h"

#if defined(__aarch64__)

#include "simd/inline.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
#define BALLAST_ISA neon_dot
namespace ballast::gemm::neon_dot {

using neon::kGemvBlocks, neon::kGemvTileM;

/// sums += products of int8.
BALLAST_INLINE int32x4_t dot_add_8(int32x4_t sums, int8x16_t a, int8x16_t b) {
  return vdotq_s32(sums, a, b);
}

}  // namespace ballast::gemm::neon_dot
#include "gemm/neon-inl.h"
HWY_POP_ATTRIBUTES

#endif
