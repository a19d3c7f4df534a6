// Integer GEMV of quantized weights with NEON. Included by gemv_neon.cc after it sets BALLAST_ISA
// and defines dot_add_8() in it: other products of bytes (SDOT) need no more.
//
// A weight less its zero point fits int8, as do both parts of an activation (HiLo): products need
// no unsigned operand, and nothing is left to subtract.
#pragma once

#include "gemm/loads-inl.h"

namespace ballast::gemm::BALLAST_ISA {

using Vector = uint8x16_t;

BALLAST_INLINE Vector broadcast_8(int byte) { return vdupq_n_u8(static_cast<std::uint8_t>(byte)); }
BALLAST_INLINE Vector broadcast_128(Bits128 v) { return v; }
BALLAST_INLINE Vector and_bits(Vector a, Vector b) { return vandq_u8(a, b); }
BALLAST_INLINE Vector xor_bits(Vector a, Vector b) { return veorq_u8(a, b); }
/// a | (b & mask)
BALLAST_INLINE Vector or_masked(Vector a, Vector b, Vector mask) {
  return vorrq_u8(a, vandq_u8(b, mask));
}
template <int bits>
BALLAST_INLINE Vector shift_left_16(Vector v) {
  return vreinterpretq_u8_u16(vshlq_n_u16(vreinterpretq_u16_u8(v), bits));
}
template <int bits>
BALLAST_INLINE Vector shift_right_16(Vector v) {
  if constexpr (bits == 0)
    return v;
  else
    return vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(v), bits));
}
BALLAST_INLINE Vector shuffle_8(Vector v, Vector index) { return vqtbl1q_u8(v, index); }

/// Six-bit scales of Q4_K and Q5_K of the block at p, a byte each: scales 0 to 7, then mins.
BALLAST_INLINE Bits128 unpack_6bit_at(Bytes p) {
  const auto a = load<std::uint32_t>(p + 4), b = load<std::uint32_t>(p + 8),
             c = load<std::uint32_t>(p + 12);
  constexpr std::uint32_t kSix = 0x3f3f3f3f, kFour = 0x0f0f0f0f, kTwo = 0x30303030;
  const auto pair = [](std::uint32_t low, std::uint32_t high) {
    return static_cast<std::int64_t>(low | std::uint64_t{high} << 32);
  };
  return make_128(pair(b & kSix, ((c >> 4) & kFour) | ((b >> 2) & kTwo)),
                  pair(a & kSix, (c & kFour) | ((a >> 2) & kTwo)));
}

}  // namespace ballast::gemm::BALLAST_ISA

#include "gemm/gemv-inl.h"

namespace ballast::gemm::BALLAST_ISA {

using Sums = int32x4_t;

/// A vector for each row, summed: an element for each row.
BALLAST_INLINE Sums add_lanes(const Sums (&rows)[kTileN]) {
  return vpaddq_s32(vpaddq_s32(rows[0], rows[1]), vpaddq_s32(rows[2], rows[3]));
}

/// Sixteen weights from codes that are kZeroPoint too high.
template <typename Type>
BALLAST_INLINE int8x16_t weights(Vector codes) {
  if constexpr (Type::kZeroPoint == 128) {
    codes = xor_bits(codes, broadcast_8(128));
  } else if constexpr (Type::kZeroPoint != 0) {
    codes = vsubq_u8(codes, broadcast_8(Type::kZeroPoint));
  }
  return vreinterpretq_s8_u8(codes);
}

/// Σ wᵢxᵢ of an activation's high parts and of its low ones, in four partial sums.
struct HiLoSums {
  Sums high = vdupq_n_s32(0), low = vdupq_n_s32(0);

  /// Adds 16 elements; `at` is that of the first in the super-block.
  BALLAST_INLINE void add(int8x16_t w, const QuantizedActivations& x, std::size_t at) {
    high = dot_add_8(high, w, vld1q_s8(x.high + at));
    low = dot_add_8(low, w, vld1q_s8(x.low + at));
  }
  BALLAST_INLINE void add(const HiLoSums& other, int factor) {
    high = vmlaq_n_s32(high, other.high, factor);
    low = vmlaq_n_s32(low, other.low, factor);
  }
  BALLAST_INLINE Sums sum() const { return vaddq_s32(vshlq_n_s32(high, kLowBits), low); }
};

/// The fifth bits of a block, as bit 4 of each byte.
struct FifthBits {
  Bytes p;
  template <int h>
  BALLAST_INLINE Vectors<1> at() const {
    constexpr std::uint8_t kBit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x8_t bit = vld1_u8(kBit);
    return {
        {vcombine_u8(vtst_u8(vdup_n_u8(p[2 * h]), bit), vtst_u8(vdup_n_u8(p[2 * h + 1]), bit))}};
  }
};

template <std::size_t kBlocks, typename Type, std::size_t M>
BALLAST_INLINE void block_dots(Type, const Bytes (&p)[kTileN],
                               const QuantizedActivations* const (&x)[M], RowFloats (&t)[M]) {
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = broadcast_rows(0.0f); });
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const std::size_t at = b * Type::kBytes;
    Sums sums[M][kTileN];
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      Vectors<1> raw[kCodeLoads<Type>];
      unroll<kCodeLoads<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
        raw[i] = {{load_128(p[r] + at + Type::kCodes[i])}};
      });
      const FifthBits fifth{p[r] + at + Type::kFifthBits};
      const int8x16_t first = weights<Type>(Type::template codes<0>(raw, fifth).v[0]);
      const int8x16_t second = weights<Type>(Type::template codes<1>(raw, fifth).v[0]);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        HiLoSums parts;
        parts.add(first, *x[c], 32 * b);
        parts.add(second, *x[c], 32 * b + 16);
        sums[c][r] = parts.sum();
      });
    });
    const RowFloats scales = load_f16_of_rows(at + Type::kScale, p);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      t[c] = mul_add_rows(vcvtq_f32_s32(add_lanes(sums[c])), scales, t[c]);
    });
  }
  add_mins<Type, kBlocks>(p, x, t);
}

template <typename Type, std::size_t M>
requires(Type::kIsBlock32) BALLAST_INLINE
    void superblock_dots(Type type, const Bytes (&p)[kTileN],
                         const QuantizedActivations* const (&x)[M], RowFloats (&t)[M]) {
  block_dots<8>(type, p, x, t);
}

/// Integer scales and minima of a block's groups.
template <typename Type>
struct RowScales {
  static constexpr int kGroups = 256 / Type::kGroup;
  std::int8_t scales[16], mins[16];

  explicit BALLAST_INLINE RowScales(Bytes p) {
    const GroupScales groups = Type::group_scales(p);
    vst1q_s8(scales, vreinterpretq_s8_u8(groups.scales));
    if constexpr (Type::kHasMin) vst1q_s8(mins, vreinterpretq_s8_u8(groups.mins));
  }

  /// Σ mᵍXᵍ in four partial sums.
  BALLAST_INLINE Sums min_sums(const QuantizedActivations& x) const {
    const std::int32_t* x_sums = Type::kGroup == 16 ? x.sums16 : x.sums32;
    Sums sums = vdupq_n_s32(0);
    unroll<kGroups / 8>([&](auto i) BALLAST_INLINE_LAMBDA {
      const int16x8_t eight = vmovl_s8(vld1_s8(mins + 8 * i));
      sums = vmlaq_s32(sums, vmovl_s16(vget_low_s16(eight)), vld1q_s32(x_sums + 8 * i));
      sums = vmlaq_s32(sums, vmovl_high_s16(eight), vld1q_s32(x_sums + 8 * i + 4));
    });
    return sums;
  }
};

/// Adds a chunk's 32 elements, of one group or two, to each activation's sums.
template <typename Type, std::size_t M>
BALLAST_INLINE void add_chunk(const Vectors<2>& codes, int chunk, const RowScales<Type>& row,
                              const QuantizedActivations* const (&x)[M], HiLoSums (&sums)[M]) {
  const int8x16_t first = weights<Type>(codes.v[0]), second = weights<Type>(codes.v[1]);
  const std::size_t at = 32 * static_cast<std::size_t>(chunk);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    HiLoSums group;
    group.add(first, *x[c], at);
    if constexpr (Type::kGroup == 32) {
      group.add(second, *x[c], at + 16);
      sums[c].add(group, row.scales[chunk]);
    } else {
      HiLoSums next;
      next.add(second, *x[c], at + 16);
      sums[c].add(group, row.scales[2 * chunk]);
      sums[c].add(next, row.scales[2 * chunk + 1]);
    }
  });
}

template <typename Type, std::size_t M>
requires(!Type::kIsBlock32) BALLAST_INLINE
    void superblock_dots(Type, const Bytes (&p)[kTileN], const QuantizedActivations* const (&x)[M],
                         RowFloats (&t)[M]) {
  Sums folds[Type::kFolds][M][kTileN], mins[M][kTileN];
  for (std::size_t r = 0; r < kTileN; ++r) {
    const RowScales<Type> row(p[r]);
    HiLoSums sums[M];
    unroll<2>([&](auto half) BALLAST_INLINE_LAMBDA {
      Vectors<2> raw[kCodeLoads<Type>];
      unroll<kCodeLoads<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
        const Bytes piece = p[r] + Type::kCodes[i][half];
        raw[i] = {{load_128(piece), load_128(piece + 16)}};
      });
      unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
        const auto codes = Type::template codes<j>(HalfCodes<Type, half, 2>{raw});
        add_chunk<Type>(codes, chunk<Type>(j) + Type::kPartner * half, row, x, sums);
      });
      if constexpr (half + 1 == 2 || Type::kFolds == 2) {
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
          folds[Type::kFolds == 2 ? half : 0][c][r] = sums[c].sum();
          sums[c] = HiLoSums();
        });
      }
    });
    if constexpr (Type::kHasMin) {
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { mins[c][r] = row.min_sums(*x[c]); });
    }
  }
  const RowFloats scales = load_f16_of_rows(Type::kScale, p);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    t[c] = broadcast_rows(0.0f);
    unroll<Type::kFolds>([&](auto f) BALLAST_INLINE_LAMBDA {
      t[c] = mul_add_rows(vcvtq_f32_s32(add_lanes(folds[f][c])), scales, t[c]);
    });
    if constexpr (Type::kHasMin) {
      const RowFloats sums = vcvtq_f32_s32(add_lanes(mins[c]));
      t[c] = vfmsq_f32(t[c], sums, load_f16_of_rows(Type::kMin, p));
    }
  });
}

void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
          const QuantizedActivations* x, std::size_t m, float* out, std::size_t out_stride) {
  with_type(type,
            [&](auto t) { gemv_of_type<decltype(t)>(w, row_bytes, n, k, x, m, out, out_stride); });
}

}  // namespace ballast::gemm::BALLAST_ISA
