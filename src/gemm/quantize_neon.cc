// Quantization of activations with NEON.
#include "gemm/kernels.h"

#if defined(__aarch64__)

#include <cmath>

#include "gemm/int_gemm.h"

namespace ballast {
namespace {

/// Quantizes k elements, 0 < k <= kSuperblock, padded with zeros.
void quantize_superblock(const float* x, std::size_t k, QuantizedActivations& out) {
  // Bits of magnitudes order as the floats do, with infinity and NaN on top.
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < k; ++i) {
    std::uint32_t one;
    std::memcpy(&one, x + i, sizeof(one));
    bits = std::max(bits, one & 0x7fffffffu);
  }
  float largest;
  std::memcpy(&largest, &bits, sizeof(largest));
  // Below 2⁻¹¹⁰ the reciprocal overflows.
  const bool nonzero = largest >= 0x1p-110f, finite = bits < 0x7f800000;
  out.scale = !finite ? __builtin_nanf("") : nonzero ? largest / gemm::kActivationMax : 0.0f;
  const float factor = finite && nonzero ? gemm::kActivationMax / largest : 0.0f;
  alignas(16) std::int16_t v[kSuperblock] = {};
  for (std::size_t i = 0; i < k; ++i) {
    v[i] = static_cast<std::int16_t>(vcvtns_s32_f32(x[i] * factor));
  }
  for (std::size_t i = 0; i < kSuperblock; ++i) {
    const int high = (v[i] + (1 << (kLowBits - 1))) >> kLowBits;
    out.high[i] = static_cast<std::int8_t>(high);
    out.low[i] = static_cast<std::int8_t>(v[i] - (high << kLowBits));
  }
  for (std::size_t g = 0; g < kSuperblock / 16; ++g) {
    out.sums16[g] = vaddlvq_s16(vld1q_s16(v + 16 * g)) + vaddlvq_s16(vld1q_s16(v + 16 * g + 8));
  }
  for (std::size_t b = 0; b < kSuperblock / 32; ++b) {
    out.sums32[b] = out.sums16[2 * b] + out.sums16[2 * b + 1];
  }
}

}  // namespace

void quantize(const float* x, std::size_t k, QuantizedActivations* out) {
  for (std::size_t i = 0; i < k; i += kSuperblock) {
    quantize_superblock(x + i, std::min(kSuperblock, k - i), *out++);
  }
}

}  // namespace ballast

#endif
