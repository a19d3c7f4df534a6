// Integer GEMV of quantized weights: everything but superblock_dots(), which each instruction set
// writes in its own way. Included after avx2-inl.h, avx512-inl.h or neon-inl.h, inside a region of
// that target.
//
// A tile is four weight rows times up to kGemvTileM activations. Weights are read once, from memory
// straight into registers; activations stay in L1.
#pragma once

#include "gemm/prefetch-inl.h"
#include "gemm/quant_types-inl.h"

namespace ballast::gemm::BALLAST_ISA {

constexpr int kTileN = 4;

/// t[c] += the minima's part of the first blocks of a super-block of a Block32 type.
template <typename Type, std::size_t kBlocks = 8, std::size_t M>
BALLAST_INLINE void add_mins(const Bytes (&p)[kTileN], const QuantizedActivations* const (&x)[M],
                             RowFloats (&t)[M]) {
  if constexpr (!Type::kHasMin) return;
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const RowFloats mins = load_f16_of_rows(b * Type::kBytes + Type::kMin, p);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      t[c] = mul_add_rows(broadcast_rows(static_cast<float>(x[c]->sums32[b])), mins, t[c]);
    });
  }
}

/// sums[c][r] += the part of `blocks` super-blocks. Weight rows are `stride` bytes apart, the
/// super-blocks of activations `x_stride` apart. superblock_dots(Type(), p, x, t) sets t[c] to the
/// part of the super-block at p, one row an element.
template <typename Type, std::size_t M, bool kLong>
__attribute__((noinline)) void accumulate_superblocks(Bytes first, std::size_t stride,
                                                      std::size_t blocks,
                                                      const QuantizedActivations* activations,
                                                      std::size_t x_stride, float (*sums)[kTileN]) {
  const Prefetcher<kLong> prefetcher(stride);
  const QuantizedActivations* x[M];
  RowFloats total[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    x[c] = activations + c * x_stride;
    total[c] = load_rows(sums[c]);
  });
  std::size_t at = 0;
  for (std::size_t i = 0; i < blocks; ++i, at += kSuperblockBytes<Type>) {
    const Bytes p = first + at;
    prefetcher.template prefetch_tile<kSuperblockBytes<Type>>(p, at);
    RowFloats t[M];
    superblock_dots(Type(), {p, p + stride, p + 2 * stride, p + 3 * stride}, x, t);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      total[c] = mul_add_rows(t[c], broadcast_rows(x[c]->scale), total[c]);
      ++x[c];
    });
  }
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { store_rows(sums[c], total[c]); });
}

/// The same of the first blocks of a super-block of a Block32 type: rows of 576, 640, 896 or 960
/// elements end with a part of one. Filled up with zeros it gives the same bits.
template <std::size_t kBlocks, typename Type, std::size_t M>
void accumulate_blocks(Bytes p, std::size_t stride, const QuantizedActivations* activations,
                       std::size_t x_stride, float (*sums)[kTileN]) {
  const QuantizedActivations* x[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { x[c] = activations + c * x_stride; });
  RowFloats t[M];
  block_dots<kBlocks>(Type(), {p, p + stride, p + 2 * stride, p + 3 * stride}, x, t);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    store_rows(sums[c], mul_add_rows(t[c], broadcast_rows(x[c]->scale), load_rows(sums[c])));
  });
}

/// sums[c][r] = <row r, activation c> for a tile of four rows and M activations. `more`: a row
/// follows them.
template <typename Type, std::size_t M>
void dot_tile(Bytes first, std::size_t stride, std::size_t k, bool more,
              const QuantizedActivations* x, float (*sums)[kTileN]) {
  std::fill_n(sums[0], M * kTileN, 0.0f);
  const std::size_t whole = k / kSuperblock;
  const std::size_t rest = k % kSuperblock / Type::kElements * Type::kBytes;
  for_row_length(stride, [&](auto is_long) {
    accumulate_superblocks<Type, M, is_long>(first, stride, whole, x, superblocks(k), sums);
  });
  if (rest == 0) return;
  const Bytes last = first + whole * kSuperblockBytes<Type>;
  x += whole;
  if constexpr (Type::kIsBlock32) {
    bool done = false;
    unroll<3>([&](auto i) {
      constexpr std::size_t kBlocks = 2 * i + 2;
      if (rest != kBlocks * Type::kBytes || (!more && kBlocks % kGemvBlocks != 0)) return;
      accumulate_blocks<kBlocks, Type, M>(last, stride, x, superblocks(k), sums);
      done = true;
    });
    if (done) return;
  }
  std::uint8_t padded[kTileN][kSuperblockBytes<Type>] = {};
  for (std::size_t r = 0; r < kTileN; ++r) std::memcpy(padded[r], last + r * stride, rest);
  accumulate_superblocks<Type, M, false>(padded[0], sizeof(padded[0]), 1, x, superblocks(k), sums);
}

/// gemv() of one type.
template <typename Type>
void gemv_of_type(const std::byte* w, std::size_t stride, std::size_t n, std::size_t k,
                  const QuantizedActivations* x, std::size_t m, float* out,
                  std::size_t out_stride) {
  const Bytes rows = bytes(w);
  float sums[kGemvTileM][kTileN];
  for (std::size_t i = 0; i < n;) {
    // The last rows one at a time, each repeated four times.
    const bool four = n - i >= kTileN;
    for (std::size_t j = 0; j < m;) {
      // Activations are divided evenly into tiles.
      const std::size_t left = m - j, tiles = (left + kGemvTileM - 1) / kGemvTileM;
      const std::size_t tile_m = (left + tiles - 1) / tiles;
      unroll<kGemvTileM>([&](auto c) {
        if (tile_m != c + 1) return;
        dot_tile<Type, c + 1>(rows + i * stride, four ? stride : 0, k, i + kTileN < n,
                              x + j * superblocks(k), sums);
      });
      for (std::size_t c = 0; c < tile_m; ++c, ++j) {
        std::copy_n(sums[c], four ? kTileN : 1, out + j * out_stride + i);
      }
    }
    i += four ? kTileN : 1;
  }
}

}  // namespace ballast::gemm::BALLAST_ISA
