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
#include <utility>

#include "base/inline.h"

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
/// The float at p in every lane, broadcast as an integer: as a float, Zen 4 would take the unit of
/// shuffles for it.
BALLAST_INLINE __m512 everywhere(const float* p) {
  __m512i v;
  asm("vpbroadcastd %1, %0" : "=v"(v) : "m"(*p));
  return (__m512)v;
}
BALLAST_INLINE __m256 half_of(const float* p) {
  __m256i v;
  asm("vpbroadcastd %1, %0" : "=v"(v) : "m"(*p));
  return (__m256)v;
}

/// Sixteen bytes as words.
BALLAST_INLINE __m256i words(Bytes p) { return _mm256_cvtepu8_epi16(load_16(p)); }

/// Two vectors rounded, a before b.
BALLAST_INLINE __m512i round_pair(__m512 a, __m512 b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }
BALLAST_INLINE __m256i round_pair(__m256 a, __m256 b) { return (__m256i)_mm256_cvtne2ps_pbh(b, a); }

/// first, first + 1, …
BALLAST_INLINE __m256 eight_from(float first) {
  return _mm256_add_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_ps(first));
}
BALLAST_INLINE __m512 sixteen_from(float first) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(eight_from(first)), eight_from(first + 8), 1);
}

/// The float16 at p in every lane.
BALLAST_INLINE __m512 all_of_f16(Bytes p) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(load<std::int16_t>(p)));
}

/// Small integers times the float16 at `factor`.
BALLAST_INLINE __m512 scaled(__m512i integers, Bytes factor) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(integers), all_of_f16(factor));
}

/// Entry index % 32 (or 16) of a table, for each index.
BALLAST_INLINE __m512i look_up(__m512i table, __m512i index) {
  return _mm512_permutexvar_epi16(index, table);
}
BALLAST_INLINE __m256i look_up(__m256i table, __m256i index) {
  return _mm256_permutexvar_epi16(index, table);
}

/// 32 numbers in two registers: for tables of sixteen values, twice as many instructions of half
/// the cost, and nothing is computed twice.
struct Halves {
  __m256i low, high;
};

// A reader has: kNumbers and kBytes of a block; kStep, how many numbers it reads at a time, 32 in a
// Numbers; and four functions. factors() writes the kFactors scales and offsets of a block as
// floats, well before they are wanted: to broadcast them from memory is cheap, but not right after
// they were written. begin(), middle() and end() read the step-th kStep numbers, in stages that are
// gone through for several rows side by side, so that little waits for what was just begun; what
// one leaves to the next is in Parts. A type of short blocks may make the factors of eight of them
// at a time, with factors_of_eight(): fewer instructions, but more for the units of vectors.

struct NoFactors {
  static constexpr int kFactors = 0;
  static BALLAST_INLINE void factors(Bytes, float*) {}
};

/// Writes the float16 at p as a float, by integer instructions: the units of vectors are what
/// binds.
BALLAST_INLINE void one_f16(Bytes p, float* out) {
  const std::uint32_t bits = load<std::uint16_t>(p);
  // Sign, exponent and fraction to their places; the exponent's bias grows from 15 to 127.
  std::uint32_t value = _pdep_u32(bits, 0x8fffe000u) + (112u << 23);
  // Exponents 0 and 31, of subnormal numbers, infinity and NaN, are not of that kind.
  if (((bits + 0x400) & 0x7800) == 0) [[unlikely]] {
    const __m128i half = _mm_cvtsi32_si128(static_cast<int>(bits));
    value = static_cast<std::uint32_t>(_mm_cvtsi128_si32((__m128i)_mm_cvtph_ps(half)));
  }
  std::memcpy(out, &value, sizeof(value));
}

/// The float16 numbers, one (a scale) or two (and an offset) of them, that blocks of `bytes` bytes
/// begin with.
template <int bytes, int count>
struct LeadingFactors {
  static constexpr int kFactors = count;
  static BALLAST_INLINE void factors(Bytes block, float* out) {
    one_f16(block, out);
    if constexpr (count == 2) one_f16(block + 2, out + 1);
  }
  static BALLAST_INLINE void factors_of_eight(Bytes first, float* out) {
    if constexpr (count == 1) {
      _mm256_storeu_ps(out, _mm256_cvtph_ps(eight<1>(first)));
    } else {
      _mm256_storeu_ps(out, _mm256_cvtph_ps(eight<2>(first)));
      _mm256_storeu_ps(out + 8, _mm256_cvtph_ps(eight<2>(first + 4 * bytes)));
    }
  }

 private:
  /// The first `words` words of each of 8 / words blocks, each loaded so far before its block that
  /// they lie where they have to.
  template <int words>
  static BALLAST_INLINE __m128i eight(Bytes first) {
    __m128i all = load_16(first);
    auto add = [&]<int... k>(std::integer_sequence<int, k...>) __attribute__((always_inline)) {
      constexpr int kEach = (1 << words) - 1;
      ((all = _mm_blend_epi16(all, load_16(first + (k + 1) * (bytes - 2 * words)),
                              kEach << ((k + 1) * words))),
       ...);
    };
    add(std::make_integer_sequence<int, 8 / words - 1>());
    return all;
  }
};

/// For a type whose read() does all in one stage.
template <class Self>
struct AtOnce {
  struct Parts {
    Bytes block;
    const float* factors;
    int step;
  };
  static BALLAST_INLINE void begin(Bytes block, const float* factors, int step, Parts& parts) {
    parts = {block, factors, step};
  }
  static BALLAST_INLINE void middle(Parts&) {}
  template <class Numbers>
  static BALLAST_INLINE void end(const Parts& p, Numbers* out) {
    Self::read(p.block, p.factors, p.step, out);
  }
};

struct ReadBf16 : NoFactors, AtOnce<ReadBf16> {
  static constexpr int kNumbers = 32, kBytes = 64, kStep = 32;
  using Numbers = __m512i;
  static BALLAST_INLINE void read(Bytes block, const float*, int, Numbers* out) {
    out[0] = _mm512_loadu_si512(block);
  }
};

struct ReadQ8_0 : LeadingFactors<34, 1> {
  static constexpr int kNumbers = 32, kBytes = 34, kStep = 32;
  using Numbers = __m512i;
  struct Parts {
    __m512 a, b;
    const float* scale;
  };
  static BALLAST_INLINE void begin(Bytes block, const float* factors, int, Parts& parts) {
    parts = {integers(block + 2), integers(block + 18), factors};
  }
  static BALLAST_INLINE void middle(Parts& p) {
    const __m512 scale = everywhere(p.scale);
    p.a = _mm512_mul_ps(p.a, scale);
    p.b = _mm512_mul_ps(p.b, scale);
  }
  static BALLAST_INLINE void end(const Parts& p, Numbers* out) { out[0] = round_pair(p.a, p.b); }

 private:
  static BALLAST_INLINE __m512 integers(Bytes p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p)));
  }
};

// Types of one scale (and maybe one offset) for 32 numbers of four or five bits. kAt: where their
// low halves lie.

template <class Type>
struct ReadPlain : LeadingFactors<Type::kAt + 16, Type::kOffset ? 2 : 1> {
  static constexpr int kNumbers = 32, kBytes = Type::kAt + 16, kStep = 32;
};

template <class Type>
struct ReadFourBits : ReadPlain<Type> {
  using Numbers = Halves;
  struct Parts {
    __m256 low, high;
    __m256i both, table;
  };
  static BALLAST_INLINE void begin(Bytes block, const float* factors, int, Parts& parts) {
    parts.low = value(Type::low(), factors);
    parts.high = value(Type::high(), factors);
    parts.both = words(block + Type::kAt);
  }
  static BALLAST_INLINE void middle(Parts& p) { p.table = round_pair(p.low, p.high); }
  static BALLAST_INLINE void end(const Parts& p, Numbers* out) {
    out[0] = {look_up(p.table, p.both), look_up(p.table, _mm256_srli_epi16(p.both, 4))};
  }

 private:
  static BALLAST_INLINE __m256 value(__m256 level, const float* factors) {
    if constexpr (!Type::kOffset) return _mm256_mul_ps(level, half_of(factors));
    return _mm256_fmadd_ps(level, half_of(factors), half_of(factors + 1));
  }
};
struct TypeQ4_0 {
  static constexpr int kAt = 2;
  static constexpr bool kOffset = false;
  static BALLAST_INLINE __m256 low() { return eight_from(-8); }
  static BALLAST_INLINE __m256 high() { return eight_from(0); }
};
struct TypeQ4_1 {
  static constexpr int kAt = 4;
  static constexpr bool kOffset = true;
  static BALLAST_INLINE __m256 low() { return eight_from(0); }
  static BALLAST_INLINE __m256 high() { return eight_from(8); }
};
struct TypeIq4Nl {
  static constexpr int kAt = 2;
  static constexpr bool kOffset = false;
  static BALLAST_INLINE __m256 low() {
    return _mm256_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10);
  }
  static BALLAST_INLINE __m256 high() { return _mm256_setr_ps(1, 13, 25, 38, 53, 69, 89, 113); }
};

template <class Type>
struct ReadFiveBits : ReadPlain<Type>, AtOnce<ReadFiveBits<Type>> {
  using Numbers = __m512i;
  static BALLAST_INLINE void read(Bytes block, const float* factors, int, Numbers* out) {
    const __m512i table = round_pair(value(sixteen_from(Type::kFirst), factors),
                                     value(sixteen_from(Type::kFirst + 16), factors));
    // Low halves of the bytes first.
    const __m512i both =
        _mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(load_16(block + Type::kAt)));
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    const __m512i four = _mm512_and_si512(_mm512_srlv_epi16(both, shift), _mm512_set1_epi16(15));
    const auto fifth = load<std::uint32_t>(block + Type::kAt - 4);
    out[0] = look_up(table, _mm512_mask_add_epi16(four, fifth, four, _mm512_set1_epi16(16)));
  }

 private:
  static BALLAST_INLINE __m512 value(__m512 level, const float* factors) {
    if constexpr (!Type::kOffset) return _mm512_mul_ps(level, everywhere(factors));
    return _mm512_fmadd_ps(level, everywhere(factors), everywhere(factors + 1));
  }
};
struct TypeQ5_0 {
  static constexpr int kAt = 6;
  static constexpr bool kOffset = false;
  static constexpr float kFirst = -16;
};
struct TypeQ5_1 {
  static constexpr int kAt = 8;
  static constexpr bool kOffset = true;
  static constexpr float kFirst = 0;
};

/// Q4_K and Q5_K: eight scales, then eight offsets, of six bits: the same bits of four at a time.
struct SixBitFactors {
  static constexpr int kFactors = 16;
  static BALLAST_INLINE void factors(Bytes block, float* out) {
    const auto a = load<std::uint32_t>(block + 4), b = load<std::uint32_t>(block + 8),
               c = load<std::uint32_t>(block + 12);
    constexpr std::uint32_t kSix = 0x3f3f3f3f, kLow = 0x0f0f0f0f, kHigh = 0x30303030;
    const __m128i bytes = _mm_set_epi64x(eight(b & kSix, ((c >> 4) & kLow) | ((b >> 2) & kHigh)),
                                         eight(a & kSix, (c & kLow) | ((a >> 2) & kHigh)));
    const __m512 integers = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    const __m512i which = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128 scales = _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(block)));
    const __m512 both = _mm512_permutexvar_ps(which, _mm512_castps128_ps512(scales));
    _mm512_store_ps(out, _mm512_mul_ps(integers, both));
  }

 private:
  static BALLAST_INLINE std::int64_t eight(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::int64_t>(low | std::uint64_t{high} << 32);
  }
};

/// Its tables hold their sixteen values twice, so that what stands above an index's four bits is no
/// matter: whole registers, for half as many instructions.
struct ReadQ4_K : SixBitFactors {
  static constexpr int kNumbers = 256, kBytes = 144, kStep = 64;
  using Numbers = __m512i;
  struct Parts {
    __m512 low, high;
    __m512i low_table, high_table, both;
  };
  static BALLAST_INLINE void begin(Bytes block, const float* factors, int step, Parts& parts) {
    parts.low = levels(factors + 2 * step);
    parts.high = levels(factors + 2 * step + 1);
    parts.both = _mm512_cvtepu8_epi16(load_32(block + 16 + step * 32));
  }
  static BALLAST_INLINE void middle(Parts& p) {
    p.low_table = round_pair(p.low, p.low);
    p.high_table = round_pair(p.high, p.high);
  }
  static BALLAST_INLINE void end(const Parts& p, Numbers* out) {
    out[0] = look_up(p.low_table, p.both);
    out[1] = look_up(p.high_table, _mm512_srli_epi16(p.both, 4));
  }

 private:
  static BALLAST_INLINE __m512 levels(const float* factors) {
    return _mm512_fmsub_ps(everywhere(factors), sixteen_from(0), everywhere(factors + 8));
  }
};

struct ReadQ5_K : SixBitFactors, AtOnce<ReadQ5_K> {
  static constexpr int kNumbers = 256, kBytes = 176, kStep = 32;
  using Numbers = __m512i;
  static BALLAST_INLINE void read(Bytes block, const float* factors, int g, Numbers* out) {
    const __m512 scale = everywhere(factors + g), offset = everywhere(factors + 8 + g);
    const __m512i table = round_pair(_mm512_fmsub_ps(sixteen_from(0), scale, offset),
                                     _mm512_fmsub_ps(sixteen_from(16), scale, offset));
    const __m256i four = load_32(block + 48 + g / 2 * 32), top = load_32(block + 16);
    const __m256i low = g % 2 == 0 ? four : _mm256_srli_epi16(four, 4);
    const __m256i fifth = g < 4 ? _mm256_slli_epi16(top, 4 - g) : _mm256_srli_epi16(top, g - 4);
    // Bit 4 of `fifth`, the others of `low`.
    const __m256i five = _mm256_ternarylogic_epi32(_mm256_set1_epi8(16), fifth, low, 0xca);
    out[0] = look_up(table, _mm512_cvtepu8_epi16(five));
  }
};

struct ReadQ6_K {
  static constexpr int kNumbers = 256, kBytes = 210, kStep = 64, kFactors = 32;
  using Numbers = __m512i;
  static BALLAST_INLINE void factors(Bytes block, float* out) {
    const __m512 scales = scaled(_mm512_cvtepi8_epi32(load_16(block + 192)), block + 208);
    _mm512_store_ps(out, _mm512_mul_ps(scales, _mm512_set1_ps(128)));
    _mm512_store_ps(out + 16, _mm512_mul_ps(scales, _mm512_set1_ps(128 + 32)));
  }
  struct Parts {
    __m512i third;
    __m512 part[4];
    const float* group;
  };
  static BALLAST_INLINE void begin(Bytes block, const float* factors, int step, Parts& parts) {
    __m512i low = _mm512_loadu_si512(block + step / 2 * 64);
    __m512i high = _mm512_broadcast_i64x4(load_32(block + 128 + step / 2 * 32));
    if (step % 2 != 0) {
      low = _mm512_srli_epi16(low, 4);
      high = _mm512_srlv_epi16(high, halves(0, 2));
    } else {
      high = _mm512_sllv_epi16(high, halves(4, 2));
    }
    // The low four bits of `low` below two of `high`, and above these what makes q the third byte
    // of the float 1 + q/128.
    const __m512i six = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, high, 0xca);
    parts.third =
        _mm512_ternarylogic_epi32(_mm512_set1_epi8(63), six, _mm512_set1_epi8(-128), 0xca);
    parts.group = factors + 4 * step;
  }
  static BALLAST_INLINE void middle(Parts& p) {
    p.part[0] = part<0>(p.third, p.group);
    p.part[1] = part<16>(p.third, p.group + 1);
    p.part[2] = part<32>(p.third, p.group + 2);
    p.part[3] = part<48>(p.third, p.group + 3);
  }
  static BALLAST_INLINE void end(const Parts& p, Numbers* out) {
    out[0] = round_pair(p.part[0], p.part[1]);
    out[1] = round_pair(p.part[2], p.part[3]);
  }

 private:
  static BALLAST_INLINE __m512i halves(short first, short second) {
    return _mm512_inserti64x4(_mm512_set1_epi16(first), _mm256_set1_epi16(second), 1);
  }
  /// Sixteen numbers from bytes kFirst to kFirst + 16 of `third`.
  template <int kFirst>
  static BALLAST_INLINE __m512 part(__m512i third, const float* factor) {
    auto lane = [](int i) { return (kFirst + i) << 16; };
    const __m512i index = _mm512_setr_epi32(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5),
                                            lane(6), lane(7), lane(8), lane(9), lane(10), lane(11),
                                            lane(12), lane(13), lane(14), lane(15));
    const __m512i bits = _mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x3f000000),
                                                      0x4444444444444444ull, index, third);
    return _mm512_fmsub_ps((__m512)bits, everywhere(factor), everywhere(factor + 16));
  }
};

// Q2_K and Q3_K: sixteen numbers of a scale. What stands above their bits is no matter: a table
// repeats its values.

BALLAST_INLINE __m256i repeated(__m256 values) { return round_pair(values, values); }

struct ReadQ2_K : AtOnce<ReadQ2_K> {
  static constexpr int kNumbers = 256, kBytes = 84, kStep = 32, kFactors = 32;
  using Numbers = Halves;
  static BALLAST_INLINE void factors(Bytes block, float* out) {
    const __m512i both = _mm512_cvtepu8_epi32(load_16(block));
    const __m512i scales = _mm512_and_si512(both, _mm512_set1_epi32(15));
    _mm512_store_ps(out, scaled(scales, block + 80));
    _mm512_store_ps(out + 16, scaled(_mm512_srli_epi32(both, 4), block + 82));
  }
  static BALLAST_INLINE void read(Bytes block, const float* factors, int g, Numbers* out) {
    const Bytes p = block + 16 + g / 4 * 32;
    out[0] = {look_up(table(factors + 2 * g), _mm256_srli_epi16(words(p), g % 4 * 2)),
              look_up(table(factors + 2 * g + 1), _mm256_srli_epi16(words(p + 16), g % 4 * 2))};
  }

 private:
  static BALLAST_INLINE __m256i table(const float* factors) {
    const __m256 levels = _mm256_setr_ps(0, 1, 2, 3, 0, 1, 2, 3);
    return repeated(_mm256_fmsub_ps(levels, half_of(factors), half_of(factors + 16)));
  }
};

/// Sixteen scales of six bits: four in the first eight bytes, two in the last four.
struct ReadQ3_K : AtOnce<ReadQ3_K> {
  static constexpr int kNumbers = 256, kBytes = 110, kStep = 32, kFactors = 16;
  using Numbers = Halves;
  static BALLAST_INLINE void factors(Bytes block, float* out) {
    const auto a = load<std::uint32_t>(block + 96), b = load<std::uint32_t>(block + 100),
               c = load<std::uint32_t>(block + 104);
    constexpr std::uint32_t kFour = 0x0f0f0f0f, kTwo = 0x30303030;
    auto word = [](std::uint32_t low, std::uint32_t high) {
      return static_cast<int>((low & kFour) | (high & kTwo));
    };
    const __m128i bytes =
        _mm_set_epi32(word(b >> 4, c >> 2), word(a >> 4, c), word(b, c << 2), word(a, c << 4));
    const __m512i integers = _mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(32));
    _mm512_store_ps(out, scaled(integers, block + 108));
  }
  static BALLAST_INLINE void read(Bytes block, const float* factors, int g, Numbers* out) {
    auto table = [&](int group) __attribute__((always_inline)) {
      return repeated(_mm256_mul_ps(eight_from(-4), half_of(factors + group)));
    };
    auto index = [&](int first) __attribute__((always_inline)) {
      const Bytes p = block + 32 + g / 4 * 32;
      const __m256i low = _mm256_srli_epi16(words(p + first), g % 4 * 2),
                    top = words(block + first);
      const __m256i third = g < 2 ? _mm256_slli_epi16(top, 2 - g) : _mm256_srli_epi16(top, g - 2);
      return _mm256_ternarylogic_epi32(_mm256_set1_epi16(4), third, low, 0xca);
    };
    out[0] = {look_up(table(2 * g), index(0)), look_up(table(2 * g + 1), index(16))};
  }
};

}  // namespace ballast::bf16
