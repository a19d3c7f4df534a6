// Reading quantised weights as bfloat16 numbers, 32 at a time, one struct for each type. Included
// by bf16_dots.cc alone, inside its region of AVX512_BF16 code. The layouts are described in
// formats/quant.h.
//
// Types of few bits look their numbers up: scale and offset are applied to the 16 or 32 values
// that a number can have, not to the numbers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define BALLAST_INLINE inline __attribute__((always_inline))

namespace ballast::bf16 {

using Bytes = const std::uint8_t*;

template <typename T>
BALLAST_INLINE T load(Bytes p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

BALLAST_INLINE __m128i load_16(Bytes p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
BALLAST_INLINE __m256i load_32(Bytes p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
/// 32 bytes as words.
BALLAST_INLINE __m512i load_words(Bytes p) { return _mm512_cvtepu8_epi16(load_32(p)); }

/// The float16 at p in every lane.
BALLAST_INLINE __m512 broadcast_f16(Bytes p) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(load<std::int16_t>(p)));
}

/// Two vectors rounded, a before b.
BALLAST_INLINE __m512i round_pair(__m512 a, __m512 b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }

/// Entry index % 32 of a table, for 32 indices.
BALLAST_INLINE __m512i look_up(__m512i table, __m512i index) {
  return _mm512_permutexvar_epi16(index, table);
}

/// The same in half a register, for tables of sixteen values: twice as many instructions of half
/// the cost, and nothing is computed twice.
BALLAST_INLINE __m256 broadcast_f16_half(Bytes p) {
  return _mm256_cvtph_ps(_mm_set1_epi16(load<std::int16_t>(p)));
}

/// 32 numbers in two registers.
struct Halves {
  __m256i low, high;
};

BALLAST_INLINE __m256i table_of(__m256 low, __m256 high) {
  return (__m256i)_mm256_cvtne2ps_pbh(high, low);
}

/// Entries of the low halves of 16 bytes, then of their high halves.
BALLAST_INLINE Halves look_up_nibbles(__m256i table, Bytes p) {
  const __m256i words = _mm256_cvtepu8_epi16(load_16(p));
  return {_mm256_permutexvar_epi16(words, table),
          _mm256_permutexvar_epi16(_mm256_srli_epi16(words, 4), table)};
}

BALLAST_INLINE __m256 count_half_from(float first) {
  return _mm256_add_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_ps(first));
}

/// first, first + 1, …
BALLAST_INLINE __m512 count_from(float first) {
  return _mm512_add_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                       _mm512_set1_ps(first));
}

/// 16 in the words of the second half.
BALLAST_INLINE __m512i second_half() {
  return _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
}

/// Four-bit numbers of 16 bytes, low halves first; what stands above the four bits is undefined.
BALLAST_INLINE __m512i nibbles(Bytes p) {
  const __m512i words = _mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(load_16(p)));
  const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
  return _mm512_srlv_epi16(words, shift);
}

// A reader has: kNumbers and kBytes of a block; Scales, what is prepared once for a block; and
// read, the g-th 32 numbers of a block.

struct NoScales {
  explicit BALLAST_INLINE NoScales(Bytes) {}
};

struct ReadBf16 {
  static constexpr int kNumbers = 32, kBytes = 64;
  using Scales = NoScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales&, int) {
    return _mm512_loadu_si512(block);
  }
};

struct ReadQ8_0 {
  static constexpr int kNumbers = 32, kBytes = 34;
  using Scales = NoScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales&, int) {
    const __m512 scale = broadcast_f16(block);
    const __m512 a = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(block + 2)));
    const __m512 b = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(block + 18)));
    return round_pair(_mm512_mul_ps(a, scale), _mm512_mul_ps(b, scale));
  }
};

/// The sixteen values of Q4_0, or of IQ4_NL, before scaling.
struct LevelsQ4_0 {
  static BALLAST_INLINE __m256 low() { return _mm256_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1); }
  static BALLAST_INLINE __m256 high() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
};
struct LevelsIq4Nl {
  static BALLAST_INLINE __m256 low() {
    return _mm256_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10);
  }
  static BALLAST_INLINE __m256 high() { return _mm256_setr_ps(1, 13, 25, 38, 53, 69, 89, 113); }
};

template <class Levels>
struct ReadLevels {
  static constexpr int kNumbers = 32, kBytes = 18;
  using Scales = NoScales;
  static BALLAST_INLINE Halves read(Bytes block, const Scales&, int) {
    const __m256 scale = broadcast_f16_half(block);
    const __m256i table =
        table_of(_mm256_mul_ps(Levels::low(), scale), _mm256_mul_ps(Levels::high(), scale));
    return look_up_nibbles(table, block + 2);
  }
};

struct ReadQ4_1 {
  static constexpr int kNumbers = 32, kBytes = 20;
  using Scales = NoScales;
  static BALLAST_INLINE Halves read(Bytes block, const Scales&, int) {
    const __m256 scale = broadcast_f16_half(block), offset = broadcast_f16_half(block + 2);
    const __m256i table = table_of(_mm256_fmadd_ps(count_half_from(0), scale, offset),
                                   _mm256_fmadd_ps(count_half_from(8), scale, offset));
    return look_up_nibbles(table, block + 4);
  }
};

/// Four-bit numbers at p with the bits of `fifth` on top.
BALLAST_INLINE __m512i five_bits(Bytes p, std::uint32_t fifth) {
  const __m512i four = _mm512_and_si512(nibbles(p), _mm512_set1_epi16(15));
  return _mm512_mask_add_epi16(four, fifth, four, _mm512_set1_epi16(16));
}

struct ReadQ5_0 {
  static constexpr int kNumbers = 32, kBytes = 22;
  using Scales = NoScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales&, int) {
    const __m512 scale = broadcast_f16(block);
    const __m512i table =
        round_pair(_mm512_mul_ps(count_from(-16), scale), _mm512_mul_ps(count_from(0), scale));
    return look_up(table, five_bits(block + 6, load<std::uint32_t>(block + 2)));
  }
};

struct ReadQ5_1 {
  static constexpr int kNumbers = 32, kBytes = 24;
  using Scales = NoScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales&, int) {
    const __m512 scale = broadcast_f16(block), offset = broadcast_f16(block + 2);
    const __m512i table = round_pair(_mm512_fmadd_ps(count_from(0), scale, offset),
                                     _mm512_fmadd_ps(count_from(16), scale, offset));
    return look_up(table, five_bits(block + 8, load<std::uint32_t>(block + 4)));
  }
};

/// Lane g everywhere, in one instruction: told which lane, the compiler takes two. (Through memory,
/// a store and loads that broadcast, is slower than either.)
BALLAST_INLINE __m512 lane_of(__m512 v, int g) {
  __m512i lane = _mm512_set1_epi32(g);
  asm("" : "+v"(lane));
  return _mm512_permutexvar_ps(lane, v);
}
BALLAST_INLINE __m256 lane_of(__m256 v, int g) {
  __m256i lane = _mm256_set1_epi32(g);
  asm("" : "+v"(lane));
  return _mm256_permutevar8x32_ps(v, lane);
}

/// Sixteen small integers times `factor`.
BALLAST_INLINE __m512 scaled(__m512i integers, __m512 factor) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(integers), factor);
}

/// Q4_K and Q5_K: eight scales and offsets of six bits, the same bits of four at a time.
struct SixBitScales {
  __m256 scales, offsets;
  explicit BALLAST_INLINE SixBitScales(Bytes block) {
    const auto a = load<std::uint32_t>(block + 4), b = load<std::uint32_t>(block + 8),
               c = load<std::uint32_t>(block + 12);
    constexpr std::uint32_t kSix = 0x3f3f3f3f, kLow = 0x0f0f0f0f, kHigh = 0x30303030;
    scales = eight(a & kSix, (c & kLow) | ((a >> 2) & kHigh), block);
    offsets = eight(b & kSix, ((c >> 4) & kLow) | ((b >> 2) & kHigh), block + 2);
  }

 private:
  static BALLAST_INLINE __m256 eight(std::uint32_t low, std::uint32_t high, Bytes factor) {
    const std::uint64_t both = low | std::uint64_t{high} << 32;
    const __m128i bytes = _mm_cvtsi64_si128(static_cast<std::int64_t>(both));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                         broadcast_f16_half(factor));
  }
};

struct ReadQ4_K {
  static constexpr int kNumbers = 256, kBytes = 144;
  using Scales = SixBitScales;
  static BALLAST_INLINE Halves read(Bytes block, const Scales& all, int g) {
    const __m256 scale = lane_of(all.scales, g), offset = lane_of(all.offsets, g);
    const __m256i table = table_of(_mm256_fmsub_ps(count_half_from(0), scale, offset),
                                   _mm256_fmsub_ps(count_half_from(8), scale, offset));
    return {half(table, block + 16 + g / 2 * 32, g), half(table, block + 32 + g / 2 * 32, g)};
  }

 private:
  static BALLAST_INLINE __m256i half(__m256i table, Bytes p, int g) {
    const __m256i words = _mm256_cvtepu8_epi16(load_16(p));
    return _mm256_permutexvar_epi16(g % 2 == 0 ? words : _mm256_srli_epi16(words, 4), table);
  }
};

struct ReadQ5_K {
  static constexpr int kNumbers = 256, kBytes = 176;
  using Scales = SixBitScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales& all, int g) {
    const __m512 scale = lane_of(_mm512_castps256_ps512(all.scales), g);
    const __m512 offset = lane_of(_mm512_castps256_ps512(all.offsets), g);
    const __m512i table = round_pair(_mm512_fmsub_ps(count_from(0), scale, offset),
                                     _mm512_fmsub_ps(count_from(16), scale, offset));
    const __m512i words = load_words(block + 48 + g / 2 * 32);
    const __m512i low = g % 2 == 0 ? words : _mm512_srli_epi16(words, 4);
    const __m512i high = load_words(block + 16);
    const __m512i fifth = g < 4 ? _mm512_slli_epi16(high, static_cast<unsigned>(4 - g))
                                : _mm512_srli_epi16(high, static_cast<unsigned>(g - 4));
    // Bit 4 of `fifth`, the others of `low`.
    const __m512i bit = _mm512_set1_epi16(16);
    return look_up(table, _mm512_ternarylogic_epi32(bit, fifth, low, 0xca));
  }
};

/// Q6_K: sixteen scales of eight bits.
struct EightBitScales {
  __m512 scales;  ///< times 128
  explicit BALLAST_INLINE EightBitScales(Bytes block) {
    const __m512 factor = _mm512_mul_ps(broadcast_f16(block + 208), _mm512_set1_ps(128));
    scales = scaled(_mm512_cvtepi8_epi32(load_16(block + 192)), factor);
  }
};

struct ReadQ6_K {
  static constexpr int kNumbers = 256, kBytes = 210;
  using Scales = EightBitScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales& all, int g) {
    const int quarter = g % 4;
    __m256i low = load_32(block + g / 4 * 64 + quarter % 2 * 32);
    if (quarter >= 2) low = _mm256_srli_epi16(low, 4);
    const __m256i top = load_32(block + 128 + g / 4 * 32);
    const __m256i high = quarter == 0   ? _mm256_slli_epi16(top, 4)
                         : quarter == 1 ? _mm256_slli_epi16(top, 2)
                         : quarter == 2 ? top
                                        : _mm256_srli_epi16(top, 2);
    // The low four bits of `low` below two of `high`, and above these what makes q the third byte
    // of the float 1 + q/128.
    const __m256i six = _mm256_ternarylogic_epi32(_mm256_set1_epi8(15), low, high, 0xca);
    const __m256i third =
        _mm256_ternarylogic_epi32(_mm256_set1_epi8(63), six, _mm256_set1_epi8(-128), 0xca);
    return round_pair(part<0>(third, all, 2 * g), part<16>(third, all, 2 * g + 1));
  }

 private:
  /// Sixteen numbers from bytes kFirst to kFirst + 16 of `third`: 0, 0, byte, 0x3f.
  template <int kFirst>
  static BALLAST_INLINE __m512 part(__m256i third, const Scales& all, int group) {
    constexpr int kZero = 64 << 8 | 64, kExponent = 65;
    auto lane = [](int i) { return kZero | (kFirst + i) << 16 | kExponent << 24; };
    const __m512i index = _mm512_setr_epi32(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5),
                                            lane(6), lane(7), lane(8), lane(9), lane(10), lane(11),
                                            lane(12), lane(13), lane(14), lane(15));
    const __m512i exponent = _mm512_set1_epi16(0x3f00);  // bytes 0, 0x3f
    const __m512 numbers =
        (__m512)_mm512_permutex2var_epi8(_mm512_castsi256_si512(third), index, exponent);
    return _mm512_mul_ps(_mm512_sub_ps(numbers, _mm512_set1_ps(1.25f)), lane_of(all.scales, group));
  }
};

/// Q2_K: sixteen scales and offsets of four bits.
struct FourBitScales {
  __m512 scales, offsets;
  explicit BALLAST_INLINE FourBitScales(Bytes block) {
    const __m512i both = _mm512_cvtepu8_epi32(load_16(block));
    scales = scaled(_mm512_and_si512(both, _mm512_set1_epi32(15)), broadcast_f16(block + 80));
    offsets = scaled(_mm512_srli_epi32(both, 4), broadcast_f16(block + 82));
  }
  BALLAST_INLINE __m512 values(int g) const {
    return _mm512_fmsub_ps(count_from(0), lane_of(scales, g), lane_of(offsets, g));
  }
};

/// Two-bit numbers of group pair g; what stands above the two bits is undefined.
BALLAST_INLINE __m512i two_bits(Bytes p, int g) {
  return _mm512_srli_epi16(load_words(p + g / 4 * 32), static_cast<unsigned>(g % 4 * 2));
}

struct ReadQ2_K {
  static constexpr int kNumbers = 256, kBytes = 84;
  using Scales = FourBitScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales& all, int g) {
    const __m512i table = round_pair(all.values(2 * g), all.values(2 * g + 1));
    const __m512i q = _mm512_and_si512(two_bits(block + 16, g), _mm512_set1_epi16(3));
    return look_up(table, _mm512_or_si512(q, second_half()));
  }
};

/// Q3_K: sixteen scales of six bits: four in the first eight bytes, two in the last four.
struct SignedSixBitScales {
  __m512 scales;
  explicit BALLAST_INLINE SignedSixBitScales(Bytes block) {
    const auto a = load<std::uint32_t>(block + 96), b = load<std::uint32_t>(block + 100),
               c = load<std::uint32_t>(block + 104);
    constexpr std::uint32_t kFour = 0x0f0f0f0f, kTwo = 0x30303030;
    auto word = [](std::uint32_t low, std::uint32_t high) {
      return static_cast<int>((low & kFour) | (high & kTwo));
    };
    const __m128i bytes =
        _mm_set_epi32(word(b >> 4, c >> 2), word(a >> 4, c), word(b, c << 2), word(a, c << 4));
    const __m512i integers = _mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(32));
    scales = scaled(integers, broadcast_f16(block + 108));
  }
};

struct ReadQ3_K {
  static constexpr int kNumbers = 256, kBytes = 110;
  using Scales = SignedSixBitScales;
  static BALLAST_INLINE __m512i read(Bytes block, const Scales& all, int g) {
    const __m512i table = round_pair(_mm512_mul_ps(count_from(-4), lane_of(all.scales, 2 * g)),
                                     _mm512_mul_ps(count_from(-4), lane_of(all.scales, 2 * g + 1)));
    const __m512i low = _mm512_and_si512(two_bits(block + 32, g), _mm512_set1_epi16(3));
    const __m512i top = load_words(block);
    const __m512i third = g < 2 ? _mm512_slli_epi16(top, static_cast<unsigned>(2 - g))
                                : _mm512_srli_epi16(top, static_cast<unsigned>(g - 2));
    const __m512i q = _mm512_or_si512(low, _mm512_and_si512(third, _mm512_set1_epi16(4)));
    return look_up(table, _mm512_or_si512(q, second_half()));
  }
};

}  // namespace ballast::bf16
