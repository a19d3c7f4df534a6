// The kernels of int_gemm.h for each instruction set; int_gemm.cc chooses one.
//
// System headers are included here: inside a target region they would be compiled for that target.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/fail.h"
#include "formats/quant_blocks.h"
#include "gemm/int_gemm.h"
#include "simd/prefetch.h"
#include "simd/targets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ballast::gemm {

constexpr float kActivationMax = 4095;  ///< magnitude of a quantized activation

// Activations in a tile of gemv(): as many as the registers hold.
// Blocks of 32 that gemv() reads at once: the last two may belong to the next row.
namespace avx512 {
constexpr std::size_t kGemvTileM = 2, kGemvBlocks = 4;
}  // namespace avx512
namespace avx2 {
constexpr std::size_t kGemvTileM = 4, kGemvBlocks = 2;
}  // namespace avx2
namespace neon {
constexpr std::size_t kGemvTileM = 4, kGemvBlocks = 2;
}  // namespace neon

}  // namespace ballast::gemm

#define BALLAST_GEMM_KERNELS(isa)                                                                  \
  namespace ballast::gemm::isa {                                                                   \
  void quantize(const float* x, std::size_t k, QuantizedActivations* out);                         \
  void quantize(const float* x, std::size_t k, QuantizedActivationsI16* out);                      \
  void pack_activations(ConstMatrix x, ActivationPanel* out, std::size_t stride);                  \
  void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,             \
            std::size_t k, const QuantizedActivations* x, std::size_t m, float* out,               \
            std::size_t out_stride);                                                               \
  void gemv_f16(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,         \
                std::size_t k, const QuantizedActivationsI16* x, std::size_t m, float* out,        \
                std::size_t out_stride);                                                           \
  void pack_weights(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,     \
                    std::size_t k, std::size_t superblock, std::size_t ahead, WeightPanel& out);   \
  void microkernel(TensorType type, const WeightPanel& w, const ActivationPanel& x, std::size_t m, \
                   bool prefetch_next, float (*totals)[WeightPanel::kN]);                          \
  }
BALLAST_GEMM_KERNELS(avx512)
BALLAST_GEMM_KERNELS(avx2)
#undef BALLAST_GEMM_KERNELS

namespace ballast::gemm::neon {
void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
          const QuantizedActivations* x, std::size_t m, float* out, std::size_t out_stride);
}  // namespace ballast::gemm::neon

namespace ballast::gemm::avx512 {
void quantize(const float* x, std::size_t k, SmallBatchActivations* out, std::size_t stride);
void small_batch_gemm(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                      std::size_t k, const SmallBatchActivations* x, std::size_t m, float* out,
                      std::size_t out_stride);
}  // namespace ballast::gemm::avx512
