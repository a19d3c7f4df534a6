// The quantised types, for products of integers: one struct each. Included inside regions of
// BALLAST_INTEGERS_TARGET. The layouts are described in formats/quant.h.
//
// A type says where its bytes lie and how numbers are made of them, for sixty-four numbers of one
// row or for four of each of sixteen rows: the operations are the same, on vectors that were loaded
// in another way. `Bytes64<N>` is N such vectors.
#pragma once

// GCC 12 takes the undefined operands of its own intrinsics for mistakes (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/fail.h"
#include "base/inline.h"
#include "base/times-inl.h"
#include "model/integer_dots.h"

namespace ballast::integers {

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

BALLAST_INLINE void store_16(void* out, __m128i v) {
  _mm_storeu_si128(static_cast<__m128i*>(out), v);
}
BALLAST_INLINE void store_32(void* out, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(out), v);
}

template <int N>
struct Bytes64 {
  __m512i v[N];
};

/// 16 bytes at each of four places.
BALLAST_INLINE __m512i in_quarters(Bytes a, Bytes b, Bytes c, Bytes d) {
  __m512i v = _mm512_castsi128_si512(load_16(a));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_16(b));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_16(c));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, load_16(d));
}

/// sums += products of words in pairs. GCC would copy each sum before the product and after it.
BALLAST_INLINE void add_products(__m512i& sums, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
}

/// Four vectors of partial sums: lane k of each 128 bits sums up vector k's.
BALLAST_INLINE __m512i add_four(const __m512i (&v)[4]) {
  const __m512i a =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i b =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

BALLAST_INLINE __m128i add_halves(__m256i v) {
  return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
BALLAST_INLINE __m128i add_quarters(__m512i v) {
  return add_halves(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

/// Bits [at, at + bits) of every byte. What the shift brings in from the byte beside is cut off.
template <int at, int bits, int N>
BALLAST_INLINE Bytes64<N> field(const Bytes64<N>& a) {
  Bytes64<N> out;
  times<N>([&](auto i) BALLAST_HERE {
    const __m512i moved = at == 0 ? a.v[i] : _mm512_srli_epi16(a.v[i], at);
    out.v[i] = _mm512_and_si512(moved, _mm512_set1_epi8((1 << bits) - 1));
  });
  return out;
}

/// `low` with `bits` bits of `high`, from bit `from` on, at bit `to`.
template <int from, int bits, int to, int N>
BALLAST_INLINE Bytes64<N> with_bits(const Bytes64<N>& low, const Bytes64<N>& high) {
  Bytes64<N> out;
  times<N>([&](auto i) BALLAST_HERE {
    const __m512i moved = from <= to ? _mm512_slli_epi16(high.v[i], to - from)
                                     : _mm512_srli_epi16(high.v[i], from - to);
    constexpr auto kMask = static_cast<char>(((1 << bits) - 1) << to);
    // low | (moved & mask)
    out.v[i] = _mm512_ternarylogic_epi32(low.v[i], moved, _mm512_set1_epi8(kMask), 0xf8);
  });
  return out;
}

/// Bytes from -128 to 127, 128 higher.
template <int N>
BALLAST_INLINE Bytes64<N> above_zero(const Bytes64<N>& a) {
  Bytes64<N> out;
  times<N>([&](auto i)
               BALLAST_HERE { out.v[i] = _mm512_xor_si512(a.v[i], _mm512_set1_epi8(-128)); });
  return out;
}

/// Entry 0 to 15 of a table of bytes, the same in each 16 of its bytes.
template <int N>
BALLAST_INLINE Bytes64<N> look_up(__m128i table, const Bytes64<N>& index) {
  Bytes64<N> out;
  times<N>([&](auto i) BALLAST_HERE {
    out.v[i] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), index.v[i]);
  });
  return out;
}

// Plain types: blocks of 32 numbers, each a fold. `kBytes` of a block, which begins with its scale,
// behind which kOffset types have an offset; `kRaw`, where the pieces of 16 bytes begin that it is
// made of; numbers<h>(raw, fifth) makes numbers 16h to 16h + 15 of them, from 0 to 255, `kZero`
// above what they are. `kFifth`, if not 0: where bit i is the fifth of number i; fifth.at<h>() has
// these as bit 4.

struct PlainType {
  static constexpr bool kPlain = true, kFloat = false;
  static constexpr std::size_t kNumbers = 32;
  static constexpr int kFolds = 8, kZero = 0, kFifth = 0;
  static constexpr bool kOffset = false;
};

struct TypeQ4_0 : PlainType {
  static constexpr int kBytes = 18, kZero = 8, kRaw[] = {2};
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto numbers(const Raw& raw, const Fifth&) {
    return field<4 * h, 4>(raw[0]);
  }
};
struct TypeQ4_1 : PlainType {
  static constexpr int kBytes = 20, kRaw[] = {4};
  static constexpr bool kOffset = true;
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto numbers(const Raw& raw, const Fifth&) {
    return field<4 * h, 4>(raw[0]);
  }
};
struct TypeQ5_0 : PlainType {
  static constexpr int kBytes = 22, kZero = 16, kRaw[] = {6}, kFifth = 2;
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto numbers(const Raw& raw, const Fifth& fifth) {
    return with_bits<4, 1, 4>(field<4 * h, 4>(raw[0]), fifth.template at<h>());
  }
};
struct TypeQ5_1 : PlainType {
  static constexpr int kBytes = 24, kRaw[] = {8}, kFifth = 4;
  static constexpr bool kOffset = true;
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto numbers(const Raw& raw, const Fifth& fifth) {
    return TypeQ5_0::numbers<h>(raw, fifth);
  }
};
struct TypeQ8_0 : PlainType {
  static constexpr int kBytes = 34, kZero = 128, kRaw[] = {2, 18};
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto numbers(const Raw& raw, const Fifth&) {
    return above_zero(raw[h]);
  }
};
struct TypeIq4Nl : PlainType {
  static constexpr int kBytes = 18, kZero = 128, kRaw[] = {2};
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto numbers(const Raw& raw, const Fifth&) {
    const __m128i values =
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    return look_up(_mm_xor_si128(values, _mm_set1_epi8(-128)), field<4 * h, 4>(raw[0]));
  }
};

// K types: blocks of 256 numbers in groups of kGroup, each with an integer scale (and offset, if
// kOffset). They are made two chunks of 32 at a time, chunk<j>() and the one kDistance behind it.
// `kRaw`: pairs of places with the bytes of the former chunks, and of the latter; numbers<j>(raw)
// makes chunks of them, from 0 to 63, `kZero` above what they are. scales() gives the integers of
// the groups, a byte each. Float16 scales lie at kScale and, of offsets, at kScale + 2. `kFolds`:
// as few as sums of 32 bits allow.

struct KType {
  static constexpr bool kPlain = false, kFloat = false, kOffset = false;
  static constexpr std::size_t kNumbers = 256;
  static constexpr int kFolds = 1, kZero = 0, kDistance = 4;
};

template <typename Type>
constexpr int chunk(int j) {
  return Type::kDistance == 4 ? j : j / 2 * 4 + j % 2;
}

struct Integers {
  __m128i scales, offsets;
};

BALLAST_INLINE std::int64_t eight(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::int64_t>(low | std::uint64_t{high} << 32);
}

struct TypeQ2_K : KType {
  static constexpr int kBytes = 84, kGroup = 16, kScale = 80, kRaw[][2] = {{16, 48}};
  static constexpr bool kOffset = true;
  template <int j, typename Raw>
  static BALLAST_INLINE auto numbers(const Raw& raw) {
    return field<2 * j, 2>(raw[0]);
  }
  static BALLAST_INLINE Integers scales(Bytes p) {
    const __m128i both = load_16(p), low = _mm_set1_epi8(15);
    return {_mm_and_si128(both, low), _mm_and_si128(_mm_srli_epi16(both, 4), low)};
  }
};

/// The third bits of chunks 4 to 7 lie four above those of chunks 0 to 3: Raw's `upper` moves them
/// down by kDistance.
struct TypeQ3_K : KType {
  static constexpr int kBytes = 110, kGroup = 16, kScale = 108, kZero = 4;
  static constexpr int kRaw[][2] = {{32, 64}, {0, 0}};
  template <int j, typename Raw>
  static BALLAST_INLINE auto numbers(const Raw& raw) {
    return with_bits<j, 1, 2>(field<2 * j, 2>(raw[0]), raw.upper(1));
  }
  static BALLAST_INLINE Integers scales(Bytes p) {
    const auto a = load<std::uint32_t>(p + 96), b = load<std::uint32_t>(p + 100),
               c = load<std::uint32_t>(p + 104);
    constexpr std::uint32_t kFour = 0x0f0f0f0f, kTwo = 0x30303030;
    const __m128i six = _mm_set_epi64x(
        eight(((a >> 4) & kFour) | (c & kTwo), ((b >> 4) & kFour) | ((c >> 2) & kTwo)),
        eight((a & kFour) | ((c << 4) & kTwo), (b & kFour) | ((c << 2) & kTwo)));
    return {_mm_sub_epi8(six, _mm_set1_epi8(32)), _mm_setzero_si128()};
  }
};

/// Q4_K and Q5_K begin with float16 scales of scales and of offsets, and twelve bytes of eight
/// scales and eight offsets of six bits. The same bits of four at a time, for as many blocks as
/// begin in the vector's quarters: scales 0 to 7, then offsets.
BALLAST_INLINE __m512i six_bits(__m512i first) {
  constexpr auto kAbcc = static_cast<_MM_PERM_ENUM>(0xf9), kCccc = static_cast<_MM_PERM_ENUM>(0xff);
  // a: low four scales, with the upper bits of the high four above them; b: so the offsets; c: the
  // lower bits of the high four of both.
  const __m512i ab = _mm512_shuffle_epi32(first, kAbcc);  // a, b, c, c
  const __m512i low = _mm512_and_si512(ab, _mm512_set1_epi8(63));
  const __m512i upper = _mm512_and_si512(_mm512_srli_epi32(ab, 2), _mm512_set1_epi8(48));
  const __m512i c = _mm512_srlv_epi32(_mm512_shuffle_epi32(first, kCccc),
                                      _mm512_set1_epi64(std::int64_t{4} << 32));
  // (c & 15) | upper
  const __m512i high = _mm512_ternarylogic_epi32(c, _mm512_set1_epi8(15), upper, 0xea);
  return _mm512_unpacklo_epi32(low, high);
}
BALLAST_INLINE Integers six_bit_scales(Bytes p) {
  const __m128i all = _mm512_castsi512_si128(six_bits(_mm512_castsi128_si512(load_16(p))));
  return {all, _mm_unpackhi_epi64(all, all)};
}

struct TypeQ4_K : KType {
  static constexpr int kBytes = 144, kGroup = 32, kScale = 0, kRaw[][2] = {{16, 48}, {80, 112}};
  static constexpr int kDistance = 2;
  static constexpr bool kOffset = true;
  template <int j, typename Raw>
  static BALLAST_INLINE auto numbers(const Raw& raw) {
    return field<j % 2 * 4, 4>(raw[j / 2]);
  }
  static BALLAST_INLINE Integers scales(Bytes p) { return six_bit_scales(p); }
};

struct TypeQ5_K : KType {
  static constexpr int kBytes = 176, kGroup = 32, kScale = 0, kDistance = 2;
  static constexpr int kRaw[][2] = {{48, 80}, {112, 144}, {16, 16}};
  static constexpr bool kOffset = true;
  template <int j, typename Raw>
  static BALLAST_INLINE auto numbers(const Raw& raw) {
    return with_bits<chunk<TypeQ5_K>(j), 1, 4>(field<j % 2 * 4, 4>(raw[j / 2]), raw.upper(2));
  }
  static BALLAST_INLINE Integers scales(Bytes p) { return six_bit_scales(p); }
};

/// Numbers of 32 times scales of 128 times 4,095: 128 of them fit 32 bits.
struct TypeQ6_K : KType {
  static constexpr int kBytes = 210, kGroup = 16, kScale = 208, kZero = 32, kFolds = 2;
  static constexpr int kRaw[][2] = {{0, 64}, {32, 96}, {128, 160}};
  template <int j, typename Raw>
  static BALLAST_INLINE auto numbers(const Raw& raw) {
    return with_bits<2 * j, 2, 4>(field<j / 2 * 4, 4>(raw[j % 2]), raw[2]);
  }
  static BALLAST_INLINE Integers scales(Bytes p) { return {load_16(p + 192), _mm_setzero_si128()}; }
};

template <typename Type>
constexpr int kRaws = static_cast<int>(std::size(Type::kRaw));
/// Bytes of a row's span.
template <typename Type>
constexpr std::size_t kSpanBytes = kSpan / Type::kNumbers* Type::kBytes;

/// Calls `action` with the type, a quantised one.
template <typename Action>
auto with_type(TensorType type, Action&& action) {
  switch (type) {
    case TensorType::q4_0:
      return action(TypeQ4_0());
    case TensorType::q4_1:
      return action(TypeQ4_1());
    case TensorType::q5_0:
      return action(TypeQ5_0());
    case TensorType::q5_1:
      return action(TypeQ5_1());
    case TensorType::q8_0:
      return action(TypeQ8_0());
    case TensorType::q2_k:
      return action(TypeQ2_K());
    case TensorType::q3_k:
      return action(TypeQ3_K());
    case TensorType::q4_k:
      return action(TypeQ4_K());
    case TensorType::q5_k:
      return action(TypeQ5_K());
    case TensorType::q6_k:
      return action(TypeQ6_K());
    case TensorType::iq4_nl:
      return action(TypeIq4Nl());
    default:
      fail("weights of type {} are not quantised", to_string(type));
  }
}

inline Bytes bytes(const std::byte* p) { return reinterpret_cast<Bytes>(p); }

}  // namespace ballast::integers
