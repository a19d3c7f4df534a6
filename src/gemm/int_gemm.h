// Integer GEMV and GEMM. Quantized weights use their stored codes; F16 and BF16 are converted to
// int16. Needs AVX2, AVX-512 VNNI or NEON; docs/decisions/kernels.md shows which path serves which
// m. NEON has gemv() of quantized weights alone, for every m.
//
// A product is out (m × n) = x (m × k) · wᵀ: m activations, n weight rows, k elements in each.
//
// k is cut into super-blocks of 256 elements. Activations are quantized per super-block to integers
// in [-4095, 4095] and one float32 scale: each moves by at most 1/8190 of the largest. Quantized
// weights keep their codes. F16 and BF16 weights become integers below 2¹³ in magnitude and a power
// of two per super-block: each moves by at most 2⁻¹³ of the largest.
//
// Every path computes a dot in this order and no other:
//
//   total = 0
//   for each super-block:  t = 0
//     for each fold:       t = fma(float32(Σ wᵢxᵢ), scale of the fold, t)
//     for each minimum:    t = fma(float32(Σ mᵍXᵍ), scale of the minimum, t)
//     total = fma(t, scale of the activations, total)
//
// A fold is as many elements as share one float scale and fit one int32 sum
// (docs/decisions/kernels.md has the table). wᵢ is the code minus the zero point, in K types times
// the group's integer scale. mᵍ is a group's integer minimum, Xᵍ the sum of its activations. The
// sums are exact in int32. So a result has the same bits on every path, instruction set and thread
// count. (Past 2¹¹⁵, which only BF16 weights reach, t may overflow where the dot would not.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "ballast/engine/tensor.h"
#include "ballast/matrix.h"

namespace ballast {

/// Whether weights of this type take the integer paths: quantized types, F16 and BF16, if
/// has_avx2() or has_avx512_vnni(); quantized types on ARM. F32 does not: whoever chooses it
/// expects float32 precision.
bool has_int_gemm(TensorType type);

constexpr std::size_t kSuperblock = 256;
constexpr std::size_t superblocks(std::size_t k) { return (k + kSuperblock - 1) / kSuperblock; }

constexpr int kLowBits = 6;  ///< of the low parts of activations

#if defined(__aarch64__)
/// A super-block of one activation for gemv(), as int8 pairs: x = 64·high + low, high in [-64, 64],
/// low in [-32, 31].
struct alignas(64) QuantizedActivations {
  std::int8_t high[kSuperblock], low[kSuperblock];
  std::int32_t sums32[8], sums16[16];  ///< of 32 elements and of 16
  float scale;
};
#else
/// A super-block of one activation for gemv(), as int8 pairs: x = 64·high + low, high in [-64, 64],
/// low in [-32, 31]. uint8 × int8 products take only int8.
struct alignas(64) QuantizedActivations {
  /// 64 elements, in the order in which a type's codes are unpacked.
  struct HiLo {
    std::int8_t high[64], low[64];
  };
  /// Block32 types: first halves of blocks 0 to 3, second halves; then of blocks 4 to 7.
  HiLo half_blocks[4];
  HiLo chunks[4];  ///< K types: chunks of 32 elements 0 and 4, 1 and 5, 2 and 6, 3 and 7
  HiLo pairs[4];   ///< Q4_K and Q5_K, AVX-512 only: chunks 0 and 2, 1 and 3, 4 and 6, 5 and 7
  std::int32_t sums4[64];  ///< AVX-512 only: 32 times the sum of each four elements of `chunks`
  std::int32_t sums32[8];  ///< of 32 elements
  /// Sums of 32 and of 16 elements as int16 pairs: sum = 4·high + low.
  std::int16_t sums32_high[8], sums32_low[8], sums16_high[16], sums16_low[16];
  float scale;
};
#endif

/// A super-block of one activation for gemv_f16(), as int16 pairs. AVX-512: each element and zero.
/// AVX2: of each 16 elements 0 and 8, 1 and 9 and so on.
struct alignas(64) QuantizedActivationsI16 {
  std::int16_t pairs[kSuperblock][2];
  float scale;
};

/// Quantizes k elements into superblocks(k) super-blocks, padded with zeros. An infinity or NaN
/// makes its super-block's scale NaN; a super-block with no magnitude above 2⁻¹¹⁰ becomes zero.
void quantize(const float* x, std::size_t k, QuantizedActivations* out);
void quantize(const float* x, std::size_t k, QuantizedActivationsI16* out);

/// out[j · out_stride + i] = <weight row i, activation j> for n rows of k elements, the first at w,
/// and m activations of superblocks(k) super-blocks each. Weights are read once, unpacked in
/// registers.
void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
          const QuantizedActivations* x, std::size_t m, float* out, std::size_t out_stride);
/// The same for F16 and BF16. Throws Error if m > kGemvF16MaxM.
void gemv_f16(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
              std::size_t k, const QuantizedActivationsI16* x, std::size_t m, float* out,
              std::size_t out_stride);

/// A super-block of one activation for small_batch_gemm(). AVX-512 only.
struct SmallBatchActivations {
  struct {
    std::int8_t high[32], low[32];  ///< x = 64·high + low
  } blocks[8];
  std::int32_t sums32[8], sums16[16];  ///< of 32 elements and of 16
  float scale;
};

/// Quantizes k elements into superblocks(k) super-blocks, which lie `stride` elements of out apart.
void quantize(const float* x, std::size_t k, SmallBatchActivations* out, std::size_t stride);

/// Largest m for which gemv() or gemv_f16() is the fastest path on this processor.
constexpr std::size_t kGemvF16MaxM = 4;
std::size_t gemv_max_m(TensorType type);
/// Largest m for which small_batch_gemm() is; 0 if the processor or the type lacks it. K types stop
/// at one tile: the packed path reuses their expensive unpacking better.
std::size_t small_batch_max_m(TensorType type);

/// The same result as gemv(), one weight row in each of kSmallBatchN lanes, for m >= 3.
/// Super-block s of activation j is x[s · m + j].
constexpr std::size_t kSmallBatchN = 16;
void small_batch_gemm(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                      std::size_t k, const SmallBatchActivations* x, std::size_t m, float* out,
                      std::size_t out_stride);

/// Packed panel of kM activations, one super-block deep. Each pair holds int16 elements 0 and 2, or
/// 1 and 3, of four; behind the elements lie the sums of 32 and of 16 as pairs of high and low.
struct alignas(64) ActivationPanel {
  static constexpr std::size_t kM = 6;
  static constexpr std::size_t kSums32 = kSuperblock / 2, kSums16 = kSums32 + 8;
  static constexpr std::size_t kPairs = kSums16 + 16;
  std::int16_t pairs[kPairs][kM][2];
  float scale[kM];
};

/// Quantizes and packs up to kM rows of x into superblocks(x.cols) panels, `stride` panels apart.
void pack_activations(ConstMatrix x, ActivationPanel* out, std::size_t stride);

/// The rows of the panel that is packed next: `bytes` of each.
struct NextRows {
  const std::byte* begin = nullptr;
  std::size_t row_bytes = 0, bytes = 0;
};

/// Packed panel of kN weight rows, one super-block deep, in two halves of kN / 2 rows. A line holds
/// one pair of int16 of each row of a half, as `pairs` of ActivationPanel has them; behind them lie
/// float32 scales of the folds, then of the minima.
struct alignas(64) WeightPanel {
  static constexpr std::size_t kN = 32;
  static constexpr std::size_t kLines = kSuperblock / 2 + 24;
  std::int32_t lines[2][kLines][kN / 2];
  std::size_t elements;  ///< of the super-block that exist; lines of folds behind them are not set
  NextRows next;
};

/// Packs super-block `superblock` of n weight rows of k elements, the first at w; if n < kN, the
/// last row is repeated. Prefetches half of the next panel: the same rows' next super-block, or
/// behind the last the first of the rows `ahead` rows later.
void pack_weights(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                  std::size_t k, std::size_t superblock, std::size_t ahead, WeightPanel& out);

/// totals[j][i] += the super-block's part of <weight row i, activation j>, for j < m.
/// `prefetch_next` prefetches the other half of the next panel: memory stays busy all the time.
void microkernel(TensorType type, const WeightPanel& w, const ActivationPanel& x, std::size_t m,
                 bool prefetch_next, float (*totals)[WeightPanel::kN]);

}  // namespace ballast
