// The quantized types, for products of integers: one struct each. Included after the vectors of a
// set of instructions, inside a region of its target. The layouts are described in formats/quant.h.
//
// A type says where its bytes lie and how numbers are made of them, for as many numbers of one row
// as a vector has bytes or for four of each of kLanes rows: the operations are the same, on vectors
// that were loaded in another way. `Vectors<N>` is N such vectors.
#pragma once

#include "gemm/kernels.h"

namespace ballast::gemm::BALLAST_VECTORS {

template <int N>
struct Vectors {
  Vector v[N];
};

/// Bits [at, at + bits) of every byte. What the shift brings in from the byte beside is cut off.
template <int at, int bits, int N>
BALLAST_INLINE Vectors<N> field(const Vectors<N>& a) {
  Vectors<N> out;
  unroll<N>([&](auto i) BALLAST_INLINE_LAMBDA {
    out.v[i] = and_bits(right_16<at>(a.v[i]), all_8((1 << bits) - 1));
  });
  return out;
}

/// `low` with `bits` bits of `high`, from bit `from` on, at bit `to`.
template <int from, int bits, int to, int N>
BALLAST_INLINE Vectors<N> with_bits(const Vectors<N>& low, const Vectors<N>& high) {
  constexpr int kUp = to > from ? to - from : 0, kDown = from > to ? from - to : 0;
  Vectors<N> out;
  unroll<N>([&](auto i) BALLAST_INLINE_LAMBDA {
    const Vector moved = right_16<kDown>(left_16<kUp>(high.v[i]));
    out.v[i] = with_masked(low.v[i], moved, all_8(((1 << bits) - 1) << to));
  });
  return out;
}

/// Bytes from -128 to 127, 128 higher.
template <int N>
BALLAST_INLINE Vectors<N> above_zero(const Vectors<N>& a) {
  Vectors<N> out;
  unroll<N>([&](auto i) BALLAST_INLINE_LAMBDA { out.v[i] = xor_bits(a.v[i], all_8(-128)); });
  return out;
}

/// Entry 0 to 15 of a table of bytes, the same in each 16 of its bytes.
template <int N>
BALLAST_INLINE Vectors<N> look_up(__m128i table, const Vectors<N>& index) {
  Vectors<N> out;
  unroll<N>([&](auto i)
                BALLAST_INLINE_LAMBDA { out.v[i] = shuffle_8(all_16_bytes(table), index.v[i]); });
  return out;
}

/// Four vectors of partial sums: lane k of each 128 bits sums up vector k's.
BALLAST_INLINE Vector add_four(const Vector (&v)[4]) {
  const Vector a = add_32(low_32(v[0], v[1]), high_32(v[0], v[1]));
  const Vector b = add_32(low_32(v[2], v[3]), high_32(v[2], v[3]));
  return add_32(low_64(a, b), high_64(a, b));
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

/// The bytes of a K type's former chunks, or of the latter.
template <typename Type, int half, int N>
struct RawHalf {
  const Vectors<N>* v;
  BALLAST_INLINE const Vectors<N>& operator[](int i) const { return v[i]; }
  BALLAST_INLINE Vectors<N> upper(int i) const {
    Vectors<N> out;
    unroll<N>([&](auto d) BALLAST_INLINE_LAMBDA {
      out.v[d] = right_16<half * Type::kDistance>(v[i].v[d]);
    });
    return out;
  }
};

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

BALLAST_INLINE Integers six_bit_scales(Bytes p) {
  const __m128i all = six_bits_of(p);
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

/// Calls `action` with the type, a quantized one.
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

}  // namespace ballast::gemm::BALLAST_VECTORS
