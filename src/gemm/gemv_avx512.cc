// Integer GEMV of quantized weights with AVX-512 VNNI.
//
// vpdpbusd multiplies uint8 codes by int8 activations and adds fours to int32. The high parts come
// first; a shift by kLowBits makes room for the low ones, which accumulate on top.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Code from here on needs has_avx512_vnni().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
#include "gemm/gemv-inl.h"

namespace ballast::gemm::avx512 {

/// The fifth bits of four neighbouring blocks.
template <typename Type>
struct FifthBitsOfBlocks {
  Bytes p;
  template <int h>
  BALLAST_INLINE Vectors<1> at() const {
    std::uint64_t bits = 0;
    for (int b = 0; b < 4; ++b) {
      const Bytes first = p + b * Type::kBytes + Type::kFifthBits + 2 * h;
      bits |= std::uint64_t{load<std::uint16_t>(first)} << (16 * b);
    }
    return {{_mm512_maskz_set1_epi8(bits, 16)}};
  }
};

/// Four neighbouring blocks of each of four rows. Block32 types.
template <typename Type>
class FourBlocks {
 public:
  /// The blocks that begin `at` bytes behind p.
  BALLAST_INLINE FourBlocks(const Bytes (&p)[kTileN], int at) {
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      p_[r] = p[r] + at;
      begin_[r] = _mm512_loadu_si512(p_[r]);
    });
  }
  /// The 16 bytes of each block of row r that begin at Type::kCodes[i].
  template <int i>
  BALLAST_INLINE __m512i raw(int r) const {
    // Two loads: of the first 64 bytes, or for the second half of 34-byte blocks of the last 128,
    // and of the rest.
    constexpr int kEnd = 3 * Type::kBytes + Type::kCodes[i] + 16;
    constexpr int kFrom = i == 0 ? 0 : kEnd - 128, kRest = kEnd - kFrom - 64;
    constexpr int kTail = kRest <= 16 ? 16 : kRest <= 32 ? 32 : 64;
    static_assert(Type::kCodes[i] >= kFrom && kRest <= 64);
    static constexpr Order kOrder([](int j) {
      const int byte = j / 8 * Type::kBytes + Type::kCodes[i] + j % 8 * 2 - kFrom;
      return (byte < 64 ? byte : byte + kTail - kRest) / 2;
    });
    const __m512i begin = i == 0 ? begin_[r] : _mm512_loadu_si512(p_[r] + kFrom);
    const Bytes tail = p_[r] + kEnd - kTail;
    __m512i end;
    if constexpr (kTail == 16) {
      end = _mm512_castsi128_si512(load_128(tail));
    } else if constexpr (kTail == 32) {
      end = _mm512_castsi256_si512(load_256(tail));
    } else {
      end = _mm512_loadu_si512(tail);
    }
    return _mm512_permutex2var_epi16(begin, _mm512_load_si512(kOrder.of), end);
  }
  /// out[b] = the scales of block b, an element for each row.
  BALLAST_INLINE void scales(__m128 (&out)[4]) const {
    if constexpr (3 * Type::kBytes + 2 > 64) {
      unroll<4>([&](auto b) BALLAST_INLINE_LAMBDA {
        out[b] = load_f16_of_rows(b * Type::kBytes + Type::kScale, p_);
      });
    } else {
      // All four scales lie in begin_. Lane b gets those of two rows.
      static_assert(Type::kScale == 0);
      static constexpr Order kOrder(
          [](int j) { return j < 8 ? j / 2 * Type::kBytes / 2 + j % 2 * 32 : 0; });
      const __m512i order = _mm512_load_si512(kOrder.of);
      const auto two = [&](int r) BALLAST_INLINE_LAMBDA {
        return _mm512_castsi512_si128(_mm512_permutex2var_epi16(begin_[r], order, begin_[r + 1]));
      };
      const __m128i rows01 = two(0), rows23 = two(2);
      const __m256 low = _mm256_cvtph_ps(_mm_unpacklo_epi32(rows01, rows23));
      const __m256 high = _mm256_cvtph_ps(_mm_unpackhi_epi32(rows01, rows23));
      out[0] = _mm256_castps256_ps128(low);
      out[1] = _mm256_extractf128_ps(low, 1);
      out[2] = _mm256_castps256_ps128(high);
      out[3] = _mm256_extractf128_ps(high, 1);
    }
  }

 private:
  /// A permutation of the int16 in two vectors.
  struct Order {
    alignas(64) std::int16_t of[32];
    template <typename From>
    constexpr explicit Order(const From& from) : of() {
      for (int j = 0; j < 32; ++j) of[j] = static_cast<std::int16_t>(from(j));
    }
  };

  Bytes p_[kTileN];
  __m512i begin_[kTileN];
};

/// t[c] = the part of the first blocks of the super-block at p in <row, activation c>, a row an
/// element. Block32 types. Reads four blocks at a time: what lies behind the last two of six
/// is multiplied with the zeros that activations are filled up with.
template <int kBlocks, typename Type, std::size_t M>
BALLAST_INLINE void block_dots(Type, const Bytes (&p)[kTileN],
                               const QuantizedActivations* const (&x)[M], __m128 (&t)[M]) {
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm_setzero_ps(); });
  unroll<(kBlocks + 3) / 4>([&](auto part) BALLAST_INLINE_LAMBDA {
    constexpr int kFirst = 4 * part;
    const FourBlocks<Type> blocks(p, kFirst * Type::kBytes);
    __m512i first[kTileN], second[kTileN];
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      Vectors<1> raw[kCodeLoads<Type>];
      unroll<kCodeLoads<Type>>(
          [&](auto i) BALLAST_INLINE_LAMBDA { raw[i] = {{blocks.template raw<i>(r)}}; });
      const FifthBitsOfBlocks<Type> fifth{p[r] + kFirst * Type::kBytes};
      first[r] = Type::template codes<0>(raw, fifth).v[0];
      second[r] = Type::template codes<1>(raw, fifth).v[0];
    });
    __m128 scales[4];
    blocks.scales(scales);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const auto &x_first = x[c]->half_blocks[kFirst / 2],
                 &x_second = x[c]->half_blocks[kFirst / 2 + 1];
      __m512i v[kTileN];
      // Each step for all rows: a step depends on the one before.
      unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
        v[r] =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), first[r], _mm512_load_si512(x_first.high));
      });
      const auto add = [&](const __m512i(&codes)[kTileN],
                           const auto& part_of_x) BALLAST_INLINE_LAMBDA {
        unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
          v[r] = _mm512_dpbusd_epi32(v[r], codes[r], _mm512_load_si512(part_of_x));
        });
      };
      add(second, x_second.high);
      unroll<kTileN>([&](auto r)
                         BALLAST_INLINE_LAMBDA { v[r] = _mm512_slli_epi32(v[r], kLowBits); });
      add(first, x_first.low);
      add(second, x_second.low);
      // One block in each 128-bit lane, in it an element for each row.
      __m512i dots = hadd_4(v);
      if constexpr (Type::kZeroPoint != 0) {
        const __m512i x_sums = _mm512_permutexvar_epi32(
            _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
            _mm512_castsi128_si512(load_128(x[c]->sums32 + kFirst)));
        dots =
            _mm512_sub_epi32(dots, _mm512_mullo_epi32(x_sums, _mm512_set1_epi32(Type::kZeroPoint)));
      }
      const __m512 folds = _mm512_cvtepi32_ps(dots);
      unroll<std::min(4, static_cast<int>(kBlocks) - kFirst)>([&](auto b) BALLAST_INLINE_LAMBDA {
        t[c] = _mm_fmadd_ps(_mm512_extractf32x4_ps(folds, b), scales[b], t[c]);
      });
    });
  });
  add_mins<Type, kBlocks>(p, x, t);
}

template <typename Type, std::size_t M>
requires(Type::kIsBlock32) BALLAST_INLINE
    void superblock_dots(Type type, const Bytes (&p)[kTileN],
                         const QuantizedActivations* const (&x)[M], __m128 (&t)[M]) {
  block_dots<8>(type, p, x, t);
}

/// The codes of one row of a K type: half 0 in the low 256 bits, half 1 in the high ones.
template <typename Type>
struct RowCodes {
  Vectors<1> v[kCodeLoads<Type>];
  template <typename Index>
  BALLAST_INLINE void load(Bytes p, Index i) {
    constexpr int kLow = Type::kCodes[i][0], kHigh = Type::kCodes[i][1];
    if constexpr (kHigh == kLow + 32) {
      v[i] = {{_mm512_loadu_si512(p + kLow)}};
    } else if constexpr (kHigh == kLow) {
      v[i] = {{_mm512_broadcast_i64x4(load_256(p + kLow))}};
    } else {
      v[i] = {
          {_mm512_inserti64x4(_mm512_castsi256_si512(load_256(p + kLow)), load_256(p + kHigh), 1)}};
    }
  }
  BALLAST_INLINE const Vectors<1>& operator[](int i) const { return v[i]; }
  /// Piece i with the high bits of half 1 moved to where half 0 has them.
  BALLAST_INLINE Vectors<1> high_bits(int i) const {
    const __m512i down =
        _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(Type::kPartner), 1);
    return {{_mm512_srlv_epi16(v[i].v[0], down)}};
  }
};

/// Repeats eight int16.
BALLAST_INLINE __m512i broadcast_i16x8(const std::int16_t* p) {
  return _mm512_broadcast_i32x4(load_128(p));
}

/// Group scales and minima of four rows of a K type with groups of 16, and their float scales.
template <typename Type>
class RowScales {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kTileN]) {
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      const GroupScales groups = Type::group_scales(p[r]);
      scales_[r] = _mm512_cvtepi8_epi32(groups.scales);
      mins_[r] = groups.mins;
    });
    scale_ = load_f16_of_rows(Type::kScale, p);
    if constexpr (Type::kHasMin) min_scale_ = load_f16_of_rows(Type::kMin, p);
  }

  /// The scales of row r that multiply the fours of codes<j>(), as int32.
  template <int j, int r>
  BALLAST_INLINE __m512i for_chunks() const {
    static_assert(Type::kGroup == 16);
    constexpr int a = 2 * j, b = a + 2 * Type::kPartner;
    const __m512i groups = _mm512_setr_epi32(a, a, a, a, a + 1, a + 1, a + 1, a + 1, b, b, b, b,
                                             b + 1, b + 1, b + 1, b + 1);
    return _mm512_permutexvar_epi32(groups, scales_[r]);
  }
  BALLAST_INLINE __m128 scale() const { return scale_; }
  BALLAST_INLINE __m128 min_scale() const { return min_scale_; }
  /// Σ mᵍXᵍ, an element for each row.
  BALLAST_INLINE __m128i min_sums(const QuantizedActivations& x) const {
    __m512i sums[kTileN];
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      const __m256i m = _mm256_cvtepu8_epi16(mins_[r]);
      const __m256i high = _mm256_madd_epi16(m, load_256(x.sums16_high));
      sums[r] = _mm512_zextsi256_si512(
          _mm256_dpwssd_epi32(_mm256_slli_epi32(high, 2), m, load_256(x.sums16_low)));
    });
    return add_quarters(hadd_4(sums));
  }

 private:
  __m512i scales_[kTileN];
  __m128i mins_[kTileN];
  __m128 scale_, min_scale_;
};

/// A constant vector of bytes.
struct ByteTable {
  alignas(64) std::uint8_t of[64];
  template <typename At>
  constexpr explicit ByteTable(const At& at) : of() {
    for (int i = 0; i < 64; ++i) of[i] = static_cast<std::uint8_t>(at(i));
  }
};

/// The same for Q4_K and Q5_K, a row in each 128-bit lane.
template <typename Type>
requires(Type::kGroup == 32) class RowScales<Type> {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kTileN]) {
    const __m512i first = load_4x128(p[0], p[1], p[2], p[3]);
    groups_ = unpack_6bit(first);
    const __m512i floats = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), first);
    const __m256 both = _mm256_cvtph_ps(_mm512_castsi512_si128(floats));
    const __m128 low = _mm256_castps256_ps128(both), high = _mm256_extractf128_ps(both, 1);
    scale_ = _mm_shuffle_ps(low, high, 0x88);
    min_scale_ = _mm_shuffle_ps(low, high, 0xdd);
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      row_[r] = _mm512_shuffle_i32x4(groups_, groups_, 0x55 * r);
    });
  }

  /// The scales of row r for codes<2 i>() and codes<2 i + 1>(), as int16: in each 128-bit lane four
  /// of the former's chunk, then four of the latter's.
  template <int i, int r>
  BALLAST_INLINE __m512i for_chunks() const {
    static constexpr ByteTable kOrder([](int at) {
      if (at % 2 == 1) return 0x80;  // vpshufb clears the byte
      return chunk<Type>(2 * i + at % 16 / 8) + at / 32 * Type::kPartner;
    });
    return _mm512_shuffle_epi8(row_[r], _mm512_load_si512(kOrder.of));
  }
  BALLAST_INLINE __m128 scale() const { return scale_; }
  BALLAST_INLINE __m128 min_scale() const { return min_scale_; }
  BALLAST_INLINE __m128i min_sums(const QuantizedActivations& x) const {
    const __m512i m = _mm512_unpackhi_epi8(groups_, _mm512_setzero_si512());
    __m512i sums = _mm512_slli_epi32(_mm512_madd_epi16(m, broadcast_i16x8(x.sums32_high)), 2);
    sums = _mm512_dpwssd_epi32(sums, m, broadcast_i16x8(x.sums32_low));
    sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, static_cast<_MM_PERM_ENUM>(0x4e)));
    sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, static_cast<_MM_PERM_ENUM>(0xb1)));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(first, sums));
  }

 private:
  __m512i groups_, row_[kTileN];
  __m128 scale_, min_scale_;
};

/// v[c][r] = partial sums of row r with activation c, each group times its scale. Groups of 16.
template <typename Type, std::size_t M>
BALLAST_INLINE void row_dots(const RowScales<Type>& scales, const RowCodes<Type> (&raw)[kTileN],
                             const QuantizedActivations* const (&x)[M], __m512i (&v)[M][kTileN]) {
  // Each step for all rows: a chain of dependent steps would fill the scheduler's queues.
  unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
    __m512i codes[kTileN], scale[kTileN];
    unroll<kTileN>([&](auto r)
                       BALLAST_INLINE_LAMBDA { codes[r] = Type::template codes<j>(raw[r]).v[0]; });
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const auto& parts = (Type::kPartner == 4 ? x[c]->chunks : x[c]->pairs)[j];
      __m512i sums[kTileN];
      unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
        sums[r] =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[r], _mm512_load_si512(parts.high));
      });
      unroll<kTileN>([&](auto r)
                         BALLAST_INLINE_LAMBDA { sums[r] = _mm512_slli_epi32(sums[r], kLowBits); });
      unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
        sums[r] = _mm512_dpbusd_epi32(sums[r], codes[r], _mm512_load_si512(parts.low));
      });
      if constexpr (Type::kZeroPoint != 0) {
        // sums4 holds 32 times the sums, for zero point 32; Q3_K's is 4.
        __m512i x_sums = _mm512_load_si512(x[c]->sums4 + 16 * j);
        if (Type::kZeroPoint == 4) x_sums = _mm512_srai_epi32(x_sums, 3);
        unroll<kTileN>([&](auto r)
                           BALLAST_INLINE_LAMBDA { sums[r] = _mm512_sub_epi32(sums[r], x_sums); });
      }
      if constexpr (c == 0) {
        unroll<kTileN>(
            [&](auto r) BALLAST_INLINE_LAMBDA { scale[r] = scales.template for_chunks<j, r>(); });
      }
      unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
        sums[r] = _mm512_mullo_epi32(sums[r], scale[r]);
        v[c][r] = j == 0 ? sums[r] : _mm512_add_epi32(v[c][r], sums[r]);
      });
    });
  });
}

/// The same for groups of 32. A four of codes times one part of the activations is at most 4 · 31 ·
/// 64 in magnitude: it fits int16, which vpdpwssd multiplies with the scales in pairs.
template <typename Type, std::size_t M>
requires(Type::kGroup == 32) BALLAST_INLINE
    void row_dots(const RowScales<Type>& scales, const RowCodes<Type> (&raw)[kTileN],
                  const QuantizedActivations* const (&x)[M], __m512i (&v)[M][kTileN]) {
  constexpr std::size_t kAtOnce = 2;  // rows: as many as the registers hold
  unroll<kTileN / kAtOnce>([&](auto part) BALLAST_INLINE_LAMBDA {
    constexpr std::size_t kFirst = kAtOnce * part;
    __m512i codes[4][kAtOnce], scale[2][kAtOnce];
    unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
      unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
        codes[j][r] = Type::template codes<j>(raw[kFirst + r]).v[0];
      });
      unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
        scale[i][r] = scales.template for_chunks<i, kFirst + r>();
      });
    });
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const auto add = [&](const auto& part_of) BALLAST_INLINE_LAMBDA {
        unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
          __m512i sums[2][kAtOnce];
          unroll<2>([&](auto s) BALLAST_INLINE_LAMBDA {
            const __m512i x_part = _mm512_load_si512(part_of(x[c]->pairs[2 * i + s]));
            unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
              sums[s][r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[2 * i + s][r], x_part);
            });
          });
          unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
            const __m512i sums16 = _mm512_packs_epi32(sums[0][r], sums[1][r]);
            __m512i& sum = v[c][kFirst + r];
            sum = _mm512_dpwssd_epi32(sum, sums16, scale[i][r]);
          });
        });
      };
      unroll<kAtOnce>([&](auto r)
                          BALLAST_INLINE_LAMBDA { v[c][kFirst + r] = _mm512_setzero_si512(); });
      add([](const auto& pair) BALLAST_INLINE_LAMBDA { return pair.high; });
      unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
        v[c][kFirst + r] = _mm512_slli_epi32(v[c][kFirst + r], kLowBits);
      });
      add([](const auto& pair) BALLAST_INLINE_LAMBDA { return pair.low; });
    });
  });
}

/// t[c] = the part of the super-block at p in <row, activation c>, a row an element. K types.
template <typename Type, std::size_t M>
requires(!Type::kIsBlock32) BALLAST_INLINE
    void superblock_dots(Type, const Bytes (&p)[kTileN], const QuantizedActivations* const (&x)[M],
                         __m128 (&t)[M]) {
  const RowScales<Type> scales(p);
  RowCodes<Type> raw[kTileN];
  unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
    unroll<kCodeLoads<Type>>([&](auto i) BALLAST_INLINE_LAMBDA { raw[r].load(p[r], i); });
  });
  __m512i v[M][kTileN];
  row_dots(scales, raw, x, v);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    const __m512i sums = hadd_4(v[c]);
    if constexpr (Type::kFolds == 1) {
      t[c] = _mm_mul_ps(_mm_cvtepi32_ps(add_quarters(sums)), scales.scale());
    } else {
      const __m128i first = add_halves(_mm512_castsi512_si256(sums));
      const __m128i second = add_halves(_mm512_extracti64x4_epi64(sums, 1));
      t[c] = _mm_mul_ps(_mm_cvtepi32_ps(first), scales.scale());
      t[c] = _mm_fmadd_ps(_mm_cvtepi32_ps(second), scales.scale(), t[c]);
    }
    if constexpr (Type::kHasMin) {
      const __m128 mins = _mm_cvtepi32_ps(scales.min_sums(*x[c]));
      t[c] = _mm_fnmadd_ps(mins, scales.min_scale(), t[c]);
    }
  });
}

void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
          const QuantizedActivations* x, std::size_t m, float* out, std::size_t out_stride) {
  with_type(type,
            [&](auto t) { gemv_of_type<decltype(t)>(w, row_bytes, n, k, x, m, out, out_stride); });
}

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

#endif
