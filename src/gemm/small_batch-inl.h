// Integer GEMM of a small batch, straight from the stored weights: what Block32 types and K types
// share. Included inside regions of BALLAST_AVX512_VNNI_TARGET.
//
// Sixteen weight rows fill the lanes of a vector, four elements of each: no sum crosses lanes.
// Weights are unpacked between the products, which is free: a core starts only one product a cycle.
// Loads and products are assembly with memory operands: GCC computes the addresses in vector
// registers and broadcasts with separate instructions.
#pragma once

#include "gemm/avx512-inl.h"
#include "gemm/lanes-inl.h"

// Operands 1 to 4 of an instruction that reads row r of SixteenRows at byte `at`, as
// %c4(%1,%2,%c3).
#define BALLAST_ROW(r) \
  "r"(p_[kBase[r]]), "r"(kTimes[r] == 0 ? none_ : stride_), "i"(kScale[r]), "i"(at)

namespace ballast::gemm::avx512 {

/// Activations of a tile: their int32 and float sums stay in registers, and so do the weights.
constexpr std::size_t kSmallBatchMinM = 3, kSmallBatchTileM = 8;

/// The same byte of sixteen rows. Five pointers and a stride reach all rows in addressing modes;
/// GCC would keep sixteen pointers, even in vector registers.
class SixteenRows {
 public:
  SixteenRows(Bytes first, std::size_t stride) : stride_(stride) {
    asm("" : "+r"(none_));
    constexpr std::size_t kBaseRows[] = {0, 3, 5, 10, 15};
    unroll<5>([&](auto i) BALLAST_INLINE_LAMBDA { p_[i] = first + kBaseRows[i] * stride; });
  }

  BALLAST_INLINE void advance(std::size_t bytes) {
    for (Bytes& p : p_) p += bytes;
  }

  /// Loads 16 bytes of each row, `at` from here: vector d has bytes 4d to 4d + 3.
  template <int at>
  BALLAST_INLINE Vectors<4> load_16_bytes() const {
    return transpose_4x4(load_untransposed<at>().v);
  }
  /// The same before the transposition: vector a has the bytes of rows a, a + 4, a + 8 and a + 12.
  template <int at>
  BALLAST_INLINE Vectors<4> load_untransposed() const {
    Vectors<4> out;
    unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA {
      const __m512i low = two_of_16<a, at>(), high = two_of_16<a + 8, at>();
      out.v[a] = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    });
    return out;
  }

  /// Loads bytes 0 to 3 and 4 to 7 of each row. Both come from loads of 16 bytes: words that are
  /// stored one by one and read back as a vector wait for all the stores.
  BALLAST_INLINE void load_first_8(__m512i& first, __m512i& second) const {
    const Vectors<4> all = load_untransposed<0>();
    const __m512i a = unpack_low_32(all.v[0], all.v[1]), b = unpack_low_32(all.v[2], all.v[3]);
    first = unpack_low_64(a, b);
    second = unpack_high_64(a, b);
  }

  /// Loads 32 bytes of each row as two pieces of 16.
  template <int at>
  BALLAST_INLINE void load_32_bytes(Vectors<4> (&out)[2]) const {
    __m512i v[2][4];
    unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
      unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { v[i][a] = two_of_32<8 * i + a, at>(); });
    });
    const Vectors<4> low = transpose_4x4(v[0]), high = transpose_4x4(v[1]);
    unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA {
      out[0].v[d] = _mm512_shuffle_i32x4(low.v[d], high.v[d], 0x88);
      out[1].v[d] = _mm512_shuffle_i32x4(low.v[d], high.v[d], 0xdd);
    });
  }

  /// Loads 16 bits of each row.
  template <int at>
  BALLAST_INLINE void load_u16(std::uint16_t (&out)[kLanes]) const {
    unroll<kLanes>([&](auto r) BALLAST_INLINE_LAMBDA {
      std::uint32_t value;
      asm("movzwl %c4(%1,%2,%c3), %0" : "=r"(value) : BALLAST_ROW(r));
      // Stores in assembly: GCC packs in vector registers, with more and slower instructions.
      std::uint16_t& to = out[r];
      asm("movw %w1, %0" : "=m"(to) : "r"(value));
    });
  }

 private:
  // Row r begins kTimes[r] strides behind p_[kBase[r]].
  static constexpr int kBase[kLanes] = {0, 0, 0, 1, 0, 2, 2, 1, 0, 2, 3, 1, 3, 2, 3, 4};
  static constexpr int kTimes[kLanes] = {0, 1, 2, 0, 4, 0, 1, 4, 8, 4, 0, 8, 2, 8, 4, 0};
  static constexpr int kScale[kLanes] = {1, 1, 2, 1, 4, 1, 1, 4, 8, 4, 1, 8, 2, 8, 4, 1};

  /// Loads 16 or 32 bytes of rows r and r + 4.
  template <int r, int at>
  BALLAST_INLINE __m512i two_of_16() const {
    __m512i v;
    asm("vmovdqu32 %c4(%1,%2,%c3), %x0" : "=v"(v) : BALLAST_ROW(r));
    asm("vinserti32x4 $1, %c4(%1,%2,%c3), %t0, %t0" : "+v"(v) : BALLAST_ROW(r + 4));
    return v;
  }
  template <int r, int at>
  BALLAST_INLINE __m512i two_of_32() const {
    __m512i v;
    asm("vmovdqu32 %c4(%1,%2,%c3), %t0" : "=v"(v) : BALLAST_ROW(r));
    asm("vinserti64x4 $1, %c4(%1,%2,%c3), %0, %0" : "+v"(v) : BALLAST_ROW(r + 4));
    return v;
  }

  std::size_t stride_, none_ = 0;
  Bytes p_[5];
};

/// sums += dot product, in each lane, of four bytes of `quads` with the four at byte `at` of x. The
/// broadcast is a memory operand: GCC spends an instruction and a register on it.
template <std::size_t at>
BALLAST_INLINE void dot_add_quad(__m512i& sums, __m512i quads, const void* x) {
  asm("vpdpbusd %c3(%2)%{1to16%}, %1, %0"
      : "+v"(sums)
      : "v"(quads), "r"(x), "i"(at),
        "m"(static_cast<const SmallBatchActivations*>(x)[at / sizeof(SmallBatchActivations)]));
}

/// Copies n rows of a super-block, 1 to 16, of which k elements exist, and adds rows of zeros.
template <typename Type>
__attribute__((noinline)) void pad(Bytes first, std::size_t stride, std::size_t n, std::size_t k,
                                   std::uint8_t (*out)[kSuperblockBytes<Type>]) {
  const std::size_t bytes = k / Type::kElements * Type::kBytes;
  for (std::size_t r = 0; r < kLanes; ++r) {
    if (r < n) {
      std::memcpy(out[r], first + r * stride, bytes);
    } else {
      std::memset(out[r], 0, bytes);
    }
  }
}

/// One pass over up to sixteen rows of k elements, with a tile of the m activations.
struct Pass {
  Bytes first;
  std::size_t stride, n, k;
  std::size_t m, index, passes;
};

/// Spreads the prefetches of the next rows over the passes and over the steps of each pass.
class PrefetchPacer {
 public:
  explicit PrefetchPacer(const Pass& pass)
      : here_(reinterpret_cast<const char*>(pass.first)),
        next_(here_ + std::max(kAhead, kLanes * pass.stride)),
        others_(pass.passes - 1),
        until_(pass.index) {}

  /// The next `bytes` bytes to prefetch. In steps that another pass prefetches: lines that are in
  /// the cache already.
  const char* step(std::size_t bytes) {
    const char* next = until_ == 0 ? next_ : here_;
    until_ = until_ == 0 ? others_ : until_ - 1;
    next_ += bytes;
    return next;
  }

 private:
  static constexpr std::size_t kAhead = 24 << 10;

  const char *here_, *next_;
  std::size_t others_, until_;
};

/// dots[c] += dot products of N quads with the part of activation c at byte `at` of x. They are
/// steps `step` to step + N of `steps`, over which prefetches of `lines` lines from `next` on are
/// spread.
template <std::size_t at, int step, int steps, int lines, int N, std::size_t M>
BALLAST_INLINE void dot_quads(__m512i (&dots)[M], const __m512i (&quads)[N], const void* x,
                              const char* next) {
  unroll<N>([&](auto q) BALLAST_INLINE_LAMBDA {
    constexpr int kStep = step + q, kLine = kStep * lines / steps;
    if constexpr (kStep == 0 || (kStep - 1) * lines / steps != kLine) {
      prefetch(next + 64 * kLine);
    }
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      dot_add_quad<c * sizeof(SmallBatchActivations) + at + 4 * q>(dots[c], quads[q], x);
    });
  });
}

constexpr std::size_t kLowBytes = 32;  ///< from the high parts of a block's activations to the low

/// out[c · out_stride + r] = <row r, activation c> for a tile of M activations. add_superblock()
/// adds the part of a super-block's elements: small_batch_avx512.cc has it for Block32 types,
/// small_batch_k_avx512.cc for K types.
template <typename Type, std::size_t M>
__attribute__((noinline)) void run_pass(const Pass& pass, const SmallBatchActivations* x,
                                        float* out, std::size_t out_stride) {
  constexpr std::size_t kBytes = kSuperblockBytes<Type>;
  PrefetchPacer pacer(pass);
  __m512 totals[M];
  for (std::size_t c = 0; c < M; ++c) totals[c] = _mm512_setzero_ps();
  for (std::size_t s = 0; s < superblocks(pass.k); ++s, x += pass.m) {
    Bytes first = pass.first + s * kBytes;
    const std::size_t elements = std::min(kSuperblock, pass.k - s * kSuperblock);
    std::uint8_t padded[kLanes][kBytes];
    const bool all_rows = pass.n == kLanes;
    if (!all_rows) {
      pad<Type>(first, pass.stride, pass.n, elements, padded);
      first = padded[0];
      // The assembly of SixteenRows does not declare what it reads: finish the writes.
      asm volatile("" : "+r"(first) : : "memory");
    }
    SixteenRows rows(first, all_rows ? pass.stride : kBytes);
    __m512 t[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm512_setzero_ps(); });
    add_superblock<Type>(rows, x, pacer, elements, t);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      totals[c] = _mm512_fmadd_ps(t[c], _mm512_set1_ps(x[c].scale), totals[c]);
    });
  }
  const auto mask = static_cast<__mmask16>((1u << pass.n) - 1);
  for (std::size_t c = 0; c < M; ++c) _mm512_mask_storeu_ps(out + c * out_stride, mask, totals[c]);
}

/// The arguments of small_batch_gemm().
struct SmallBatchArgs {
  Bytes w;
  std::size_t stride, n, k;
  const SmallBatchActivations* x;
  std::size_t m;
  float* out;
  std::size_t out_stride;
};

template <typename Type>
void small_batch_of_type(const SmallBatchArgs& a) {
  const std::size_t passes = (a.m + kSmallBatchTileM - 1) / kSmallBatchTileM;
  for (std::size_t i = 0; i < a.n; i += kLanes) {
    Pass pass = {
        a.w + i * a.stride, a.stride, std::min<std::size_t>(kLanes, a.n - i), a.k, a.m, 0, passes};
    for (std::size_t j = 0; pass.index < passes; ++pass.index) {
      const std::size_t left = passes - pass.index, tile_m = (a.m - j + left - 1) / left;
      unroll<kSmallBatchTileM - kSmallBatchMinM + 1>([&](auto c) {
        if (tile_m != c + kSmallBatchMinM) return;
        run_pass<Type, c + kSmallBatchMinM>(pass, a.x + j, a.out + j * a.out_stride + i,
                                            a.out_stride);
      });
      j += tile_m;
    }
  }
}

/// K types, in a file of their own: both take long to compile.
void small_batch_k_types(TensorType type, const SmallBatchArgs& args);

}  // namespace ballast::gemm::avx512
