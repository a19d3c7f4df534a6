// Reading weights of the common types into vectors, one struct for each type. Included once for
// each Highway target. See row_dots.cc; the types' layouts are described in formats/quant.h.
#if defined(BALLAST_MODEL_ROW_READERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_MODEL_ROW_READERS_INL_H_
#undef BALLAST_MODEL_ROW_READERS_INL_H_
#else
#define BALLAST_MODEL_ROW_READERS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::FloatTag;
using kernels::HWY_NAMESPACE::FloatVec;
using kernels::HWY_NAMESPACE::IntTag;
using kernels::HWY_NAMESPACE::kLanes;
using kernels::HWY_NAMESPACE::WordTag;

// A row is read in steps of two vectors, which never cross a group that shares a scale. kBlocks:
// rows are whole blocks, hence whole steps.
inline constexpr std::size_t kStep = 2 * kLanes;

/// The float16 at p in every lane.
HWY_INLINE FloatVec broadcast_f16(const std::byte* p) {
  std::uint16_t word;
  std::memcpy(&word, p, sizeof(word));
#if HWY_TARGET == HWY_SCALAR
  return kernels::HWY_NAMESPACE::load_f16(p);
#else
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const hn::Rebind<hwy::float16_t, FloatTag> df16;
  return hn::PromoteTo(FloatTag(), hn::BitCast(df16, hn::Set(d16, word)));
#endif
}

/// kLanes unsigned bytes.
HWY_INLINE hn::Vec<IntTag> load_u8(const std::byte* p) {
  const hn::Rebind<std::uint8_t, FloatTag> d8;
  return hn::PromoteTo(IntTag(), hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(p)));
}

struct WeightsF32 {
  static constexpr bool kBlocks = false;
  static constexpr std::size_t bytes(std::size_t n) { return 4 * n; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const auto* p = reinterpret_cast<const float*>(row) + i;
    a = hn::LoadU(FloatTag(), p);
    b = hn::LoadU(FloatTag(), p + kLanes);
  }
};

struct WeightsF16 {
  static constexpr bool kBlocks = false;
  static constexpr std::size_t bytes(std::size_t n) { return 2 * n; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    a = kernels::HWY_NAMESPACE::load_f16(row + 2 * i);
    b = kernels::HWY_NAMESPACE::load_f16(row + 2 * (i + kLanes));
  }
};

struct WeightsBf16 {
  static constexpr bool kBlocks = false;
  static constexpr std::size_t bytes(std::size_t n) { return 2 * n; }
  static HWY_INLINE FloatVec load(const std::byte* p) {
    const hn::Rebind<std::uint16_t, FloatTag> d16;
    const auto words = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), words)));
  }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    a = load(row + 2 * i);
    b = load(row + 2 * (i + kLanes));
  }
};

/// Numbers i to i + kLanes of 32 four-bit ones: the low halves of 16 bytes, then the high halves.
HWY_INLINE hn::Vec<IntTag> four_bits(const std::byte* p, std::size_t i) {
  const auto q = load_u8(p + i % 16);
  return i < 16 ? hn::And(q, hn::Set(IntTag(), 15)) : hn::ShiftRight<4>(q);
}

/// Bits i to i + kLanes of 32, each as 16 or 0.
HWY_INLINE hn::Vec<IntTag> fifth_bits(const std::byte* p, std::size_t i) {
  std::uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  const WordTag du;
  const auto lane = hn::Iota(du, static_cast<std::uint32_t>(i));
  const auto bit = hn::And(hn::Shr(hn::Set(du, word), lane), hn::Set(du, 1));
  return hn::BitCast(IntTag(), hn::ShiftLeft<4>(bit));
}

HWY_INLINE FloatVec to_floats(hn::Vec<IntTag> q, int minus = 0) {
  return hn::ConvertTo(FloatTag(), hn::Sub(q, hn::Set(IntTag(), minus)));
}

/// q · scale of the types with one scale for 32 numbers. Number is a struct with bytes of a block,
/// and a function of block and index that gives kLanes values before scaling.
template <class Number>
struct ScaledBlocks {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t bytes(std::size_t n) { return n / 32 * Number::kBytes; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 32 * Number::kBytes;
    const auto scale = broadcast_f16(block);
    a = hn::Mul(Number::load(block, i % 32), scale);
    b = hn::Mul(Number::load(block, i % 32 + kLanes), scale);
  }
};

/// The same with an offset that is added.
template <class Number>
struct OffsetBlocks {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t bytes(std::size_t n) { return n / 32 * Number::kBytes; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 32 * Number::kBytes;
    const auto scale = broadcast_f16(block), offset = broadcast_f16(block + 2);
    a = hn::MulAdd(Number::load(block, i % 32), scale, offset);
    b = hn::MulAdd(Number::load(block, i % 32 + kLanes), scale, offset);
  }
};

struct NumberQ4_0 {
  static constexpr std::size_t kBytes = 18;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return to_floats(four_bits(block + 2, i), 8);
  }
};

struct NumberQ4_1 {
  static constexpr std::size_t kBytes = 20;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return to_floats(four_bits(block + 4, i));
  }
};

struct NumberQ5_0 {
  static constexpr std::size_t kBytes = 22;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return to_floats(hn::Or(four_bits(block + 6, i), fifth_bits(block + 2, i)), 16);
  }
};

struct NumberQ5_1 {
  static constexpr std::size_t kBytes = 24;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return to_floats(hn::Or(four_bits(block + 8, i), fifth_bits(block + 4, i)));
  }
};

struct NumberQ8_0 {
  static constexpr std::size_t kBytes = 34;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return kernels::HWY_NAMESPACE::load_i8(block + 2 + i);
  }
};

struct NumberIq4Nl {
  static constexpr std::size_t kBytes = 18;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    alignas(64) static constexpr float kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
    return hn::GatherIndex(FloatTag(), kValues, four_bits(block + 2, i));
  }
};

using WeightsQ4_0 = ScaledBlocks<NumberQ4_0>;
using WeightsQ4_1 = OffsetBlocks<NumberQ4_1>;
using WeightsQ5_0 = ScaledBlocks<NumberQ5_0>;
using WeightsQ5_1 = OffsetBlocks<NumberQ5_1>;
using WeightsQ8_0 = ScaledBlocks<NumberQ8_0>;
using WeightsIq4Nl = ScaledBlocks<NumberIq4Nl>;

// The K types: 256 numbers a block, in groups with small-integer scales of their own.

/// kLanes bytes at p, each shifted right and cut to `mask`.
HWY_INLINE hn::Vec<IntTag> bits_at(const std::byte* p, std::size_t shift, int mask) {
  return hn::And(hn::ShiftRightSame(load_u8(p), static_cast<int>(shift)), hn::Set(IntTag(), mask));
}

/// Numbers of two bits: each half block of 128 is four layers over 32 bytes.
HWY_INLINE hn::Vec<IntTag> two_bits(const std::byte* p, std::size_t at) {
  return bits_at(p + at / 128 * 32 + at % 32, at / 32 % 4 * 2, 3);
}

/// The float16 at p times a small integer.
HWY_INLINE FloatVec group_scale(const std::byte* p, int scale) {
  return hn::Mul(broadcast_f16(p), hn::Set(FloatTag(), static_cast<float>(scale)));
}

/// Q4_K and Q5_K: groups of 32, whose scales and offsets have six bits. Bits 4 or 5.
template <int Bits>
struct SixBitScales {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t kHigh = Bits == 5 ? 32 : 0;  ///< bytes of fifth bits
  static constexpr std::size_t kBytes = 16 + kHigh + 128;
  static constexpr std::size_t bytes(std::size_t n) { return n / 256 * kBytes; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 256 * kBytes;
    const std::size_t at = i % 256, g = at / 32;
    const auto* p = reinterpret_cast<const std::uint8_t*>(block + 4);
    const int s = g < 4 ? p[g] & 63 : (p[g + 4] & 15) | (p[g - 4] >> 6 << 4);
    const int m = g < 4 ? p[g + 4] & 63 : (p[g + 4] >> 4) | (p[g] >> 6 << 4);
    const auto scale = group_scale(block, s), offset = group_scale(block + 2, m);
    a = hn::MulSub(load(block, at), scale, offset);
    b = hn::MulSub(load(block, at + kLanes), scale, offset);
  }
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    auto q = bits_at(block + 16 + kHigh + at / 64 * 32 + at % 32, at / 32 % 2 * 4, 15);
    if constexpr (Bits == 5) {
      q = hn::Or(q, hn::ShiftLeft<4>(bits_at(block + 16 + at % 32, at / 32, 1)));
    }
    return to_floats(q);
  }
};
using WeightsQ4_K = SixBitScales<4>;
using WeightsQ5_K = SixBitScales<5>;

/// The types with groups of 16, which a vector never exceeds.
template <class Group>
struct SixteenBlocks {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t bytes(std::size_t n) { return n / 256 * Group::kBytes; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 256 * Group::kBytes;
    a = Group::load(block, i % 256);
    b = Group::load(block, i % 256 + kLanes);
  }
};

struct GroupQ2_K {
  static constexpr std::size_t kBytes = 84;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    const auto scales = std::to_integer<int>(block[at / 16]);
    return hn::MulSub(to_floats(two_bits(block + 16, at)), group_scale(block + 80, scales & 15),
                      group_scale(block + 82, scales >> 4));
  }
};

struct GroupQ3_K {
  static constexpr std::size_t kBytes = 110;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    const std::size_t g = at / 16;
    const auto* scales = reinterpret_cast<const std::uint8_t*>(block + 96);
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    const int high = (scales[8 + g % 4] >> (g / 4 * 2)) & 3;
    const auto third = bits_at(block + at % 32, at / 32, 1);
    const auto q = hn::Or(two_bits(block + 32, at), hn::ShiftLeft<2>(third));
    return hn::Mul(to_floats(q, 4), group_scale(block + 108, (low | (high << 4)) - 32));
  }
};

struct GroupQ6_K {
  static constexpr std::size_t kBytes = 210;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    const auto low = bits_at(block + at / 128 * 64 + at % 64, at / 64 % 2 * 4, 15);
    const auto q = hn::Or(low, hn::ShiftLeft<4>(two_bits(block + 128, at)));
    const auto scale = static_cast<std::int8_t>(block[192 + at / 16]);
    return hn::Mul(to_floats(q, 32), group_scale(block + 208, scale));
  }
};

using WeightsQ2_K = SixteenBlocks<GroupQ2_K>;
using WeightsQ3_K = SixteenBlocks<GroupQ3_K>;
using WeightsQ6_K = SixteenBlocks<GroupQ6_K>;

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#endif
