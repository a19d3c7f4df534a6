// Integer GEMV of F16 and BF16 weights, which become int16 in registers. Included after avx2-inl.h
// or avx512-inl.h, inside a region of that target.
#pragma once

#include "gemm/f16_to_i16-inl.h"
#include "gemm/prefetch-inl.h"

namespace ballast::gemm::BALLAST_ISA {

constexpr std::size_t kGemvF16TileN = 4;
constexpr std::size_t kF16Bytes = 2, kF16SuperblockBytes = kF16Bytes * kSuperblock;

/// A super-block of a tile's four weight rows.
struct FourRows {
  Bytes p[kGemvF16TileN];
  FloatScales scales;
};

/// Walks tiles of four rows, in each its super-blocks. If rows are missing the last one is
/// repeated. Scales are computed one super-block ahead: they need all of its elements, and every
/// product needs them.
template <typename Type>
class RowSuperblocks {
 public:
  BALLAST_INLINE RowSuperblocks(Bytes rows, std::size_t stride, std::size_t n, std::size_t k)
      : rows_(rows), stride_(stride), n_(n), k_(k) {
    set();
  }
  BALLAST_INLINE FourRows next() {
    const FourRows now = ahead_;
    at_ += kSuperblock;
    if (at_ >= k_) {
      at_ = 0;
      // Behind the last tile there is nothing: it is prepared once more.
      if (row_ + kGemvF16TileN < n_) row_ += kGemvF16TileN;
    }
    set();
    return now;
  }

 private:
  BALLAST_INLINE void set() {
    const Bytes first = rows_ + row_ * stride_ + at_ * kF16Bytes;
    const std::size_t last = n_ - row_ - 1;
    for (std::size_t r = 0; r < kGemvF16TileN; ++r) {
      ahead_.p[r] = first + std::min(r, last) * stride_;
    }
    if (k_ - at_ < kSuperblock) [[unlikely]]
      pad();
    ahead_.scales = float_scales<Type>(ahead_.p);
  }
  /// Pads the rows with zeros, in the buffer that the caller does not read at the moment.
  __attribute__((noinline)) void pad() {
    other_ = !other_;
    std::memset(padded_[other_], 0, sizeof padded_[0]);
    for (std::size_t r = 0; r < kGemvF16TileN; ++r) {
      std::memcpy(padded_[other_][r], ahead_.p[r], (k_ - at_) * kF16Bytes);
      ahead_.p[r] = padded_[other_][r];
    }
  }

  Bytes rows_;
  std::size_t stride_, n_, k_;
  std::size_t row_ = 0, at_ = 0;
  FourRows ahead_;
  bool other_ = false;
  alignas(64) std::uint8_t padded_[2][kGemvF16TileN][kF16SuperblockBytes];
};

/// t[c] = the super-block's part of <row, activation c>, a row an element. prefetch_fold(f) is
/// called during fold f.
template <typename Type, std::size_t M, typename PrefetchFold>
BALLAST_INLINE void superblock_dots(const FourRows& rows,
                                    const QuantizedActivationsI16* const (&x)[M], __m128 (&t)[M],
                                    const PrefetchFold& prefetch_fold) {
  constexpr std::size_t kTileN = kGemvF16TileN, kFold = kSuperblock / Type::kFolds;
  alignas(16) float factors[kTileN];
  _mm_store_ps(factors, rows.scales.factors);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm_setzero_ps(); });
  const auto add_fold = [&](Vector(&v)[M][kTileN]) BALLAST_INLINE_LAMBDA {
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const __m128 sums = _mm_cvtepi32_ps(add_quarters(hadd_4(v[c])));
      t[c] = _mm_fmadd_ps(sums, rows.scales.scales, t[c]);
    });
  };
  if constexpr (kHas16Registers) {
    // Loops over folds and rows: unrolled, the code exceeds the instruction caches.
#pragma GCC unroll 1
    for (std::size_t f = 0; f < Type::kFolds; ++f) {
      prefetch_fold(f);
      Vector v[M][kTileN];
#pragma GCC unroll 1
      for (std::size_t r = 0; r < kTileN; ++r) {
        const Floats factor = broadcast_f32(factors[r]);
        Vector sums[M];
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { sums[c] = zero_vector(); });
        unroll<kFold / 16>([&](auto i) BALLAST_INLINE_LAMBDA {
          const std::size_t at = f * kFold + 16 * i;
          const Vector w = load_16_as_i16<Type>(rows.p[r] + at * kF16Bytes, factor);
          unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
            dot_add_16(sums[c], w, x[c]->pairs[at / 16 * kLanes]);
          });
        });
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { v[c][r] = sums[c]; });
      }
      add_fold(v);
    }
  } else {
    Floats factor[kTileN];
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA { factor[r] = broadcast_f32(factors[r]); });
    unroll<Type::kFolds>([&](auto f) BALLAST_INLINE_LAMBDA {
      prefetch_fold(f);
      Vector v[M][kTileN];
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA { v[c][r] = zero_vector(); });
      });
      unroll<kFold / 16>([&](auto i) BALLAST_INLINE_LAMBDA {
        constexpr std::size_t kAt = f * kFold + 16 * i;
        unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
          const Vector w = load_16_as_i16<Type>(rows.p[r] + kAt * kF16Bytes, factor[r]);
          unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
            dot_add_16(v[c][r], w, x[c]->pairs[kAt / 16 * kLanes]);
          });
        });
      });
      add_fold(v);
    });
  }
}

/// gemv_f16() of one type and M activations.
template <typename Type, std::size_t M, bool kLong>
__attribute__((noinline)) void gemv_f16_of_type(Bytes rows, std::size_t stride, std::size_t n,
                                                std::size_t k,
                                                const QuantizedActivationsI16* activations,
                                                float* out, std::size_t out_stride) {
  const Prefetcher<kLong> prefetcher(stride);
  RowSuperblocks<Type> blocks(rows, stride, n, k);
  for (std::size_t i = 0; i < n; i += kGemvF16TileN) {
    const QuantizedActivationsI16* x[M];
    __m128 total[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      x[c] = activations + c * superblocks(k);
      total[c] = _mm_setzero_ps();
    });
    for (std::size_t at = 0; at < kF16Bytes * k; at += kF16SuperblockBytes) {
      const Bytes here = rows + i * stride + at;
      constexpr std::size_t kFoldBytes = kF16SuperblockBytes / Type::kFolds;
      __m128 t[M];
      superblock_dots<Type>(blocks.next(), x, t, [&](auto f) BALLAST_INLINE_LAMBDA {
        prefetcher.template prefetch_tile<kFoldBytes>(here + f * kFoldBytes, at + f * kFoldBytes);
      });
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        total[c] = _mm_fmadd_ps(t[c], _mm_set1_ps(x[c]->scale), total[c]);
        ++x[c];
      });
    }
    const auto left = static_cast<int>(std::min(kGemvF16TileN, n - i));
    const __m128i mask = _mm_cmpgt_epi32(_mm_set1_epi32(left), _mm_setr_epi32(0, 1, 2, 3));
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      _mm_maskstore_ps(out + c * out_stride + i, mask, total[c]);
    });
  }
}

void gemv_f16(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
              std::size_t k, const QuantizedActivationsI16* x, std::size_t m, float* out,
              std::size_t out_stride) {
  if (m > kGemvF16MaxM) fail("{} activations are for GEMM", m);
  if (n == 0) return;
  with_float_type(type, [&](auto t) {
    unroll<kGemvF16MaxM>([&](auto c) {
      if (m != c + 1) return;
      for_row_length(row_bytes, [&](auto is_long) {
        gemv_f16_of_type<decltype(t), c + 1, is_long>(bytes(w), row_bytes, n, k, x, out,
                                                      out_stride);
      });
    });
  });
}

}  // namespace ballast::gemm::BALLAST_ISA
