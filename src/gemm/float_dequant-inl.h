// Dequantizes weights into float32 vectors, one struct for each type. Included once for each
// Highway target. formats/quant_blocks.h has the layouts.
#if defined(BALLAST_GEMM_FLOAT_DEQUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_GEMM_FLOAT_DEQUANT_INL_H_
#undef BALLAST_GEMM_FLOAT_DEQUANT_INL_H_
#else
#define BALLAST_GEMM_FLOAT_DEQUANT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "formats/quant_blocks.h"
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

// load() yields elements i to i + kStep of a row in two vectors, which never straddle groups with
// different scales. kBlocks: rows are whole blocks, hence whole steps.
inline constexpr std::size_t kStep = 2 * kLanes;

/// Broadcasts the float16 at p.
HWY_INLINE FloatVec broadcast_f16(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
#if HWY_TARGET == HWY_SCALAR
  return kernels::HWY_NAMESPACE::load_f16(p);
#else
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const hn::Rebind<hwy::float16_t, FloatTag> df16;
  return hn::PromoteTo(FloatTag(), hn::BitCast(df16, hn::Set(d16, bits)));
#endif
}

/// Loads kLanes unsigned bytes.
HWY_INLINE hn::Vec<IntTag> load_u8(const std::byte* p) {
  const hn::Rebind<std::uint8_t, FloatTag> d8;
  return hn::PromoteTo(IntTag(), hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(p)));
}

struct WeightsF32 {
  static constexpr bool kBlocks = false;
  static constexpr std::size_t bytes(std::size_t k) { return 4 * k; }
  static HWY_INLINE void load(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const auto* p = reinterpret_cast<const float*>(row) + i;
    a = hn::LoadU(FloatTag(), p);
    b = hn::LoadU(FloatTag(), p + kLanes);
  }
};

struct WeightsF16 {
  static constexpr bool kBlocks = false;
  static constexpr std::size_t bytes(std::size_t k) { return 2 * k; }
  static HWY_INLINE void load(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    a = kernels::HWY_NAMESPACE::load_f16(row + 2 * i);
    b = kernels::HWY_NAMESPACE::load_f16(row + 2 * (i + kLanes));
  }
};

struct WeightsBf16 {
  static constexpr bool kBlocks = false;
  static constexpr std::size_t bytes(std::size_t k) { return 2 * k; }
  static HWY_INLINE FloatVec load_vector(const std::byte* p) {
    const hn::Rebind<std::uint16_t, FloatTag> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), bits)));
  }
  static HWY_INLINE void load(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    a = load_vector(row + 2 * i);
    b = load_vector(row + 2 * (i + kLanes));
  }
};

/// Four-bit codes i to i + kLanes of 32: the low nibbles of 16 bytes, then the high ones.
HWY_INLINE hn::Vec<IntTag> nibbles(const std::byte* p, std::size_t i) {
  const auto q = load_u8(p + i % 16);
  return i < 16 ? hn::And(q, hn::Set(IntTag(), 15)) : hn::ShiftRight<4>(q);
}

/// Bits i to i + kLanes of the 32 at p, each as 16 or 0.
HWY_INLINE hn::Vec<IntTag> fifth_bits(const std::byte* p, std::size_t i) {
  std::uint32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  const WordTag du;
  const auto lane = hn::Iota(du, static_cast<std::uint32_t>(i));
  const auto bit = hn::And(hn::Shr(hn::Set(du, bits), lane), hn::Set(du, 1));
  return hn::BitCast(IntTag(), hn::ShiftLeft<4>(bit));
}

HWY_INLINE FloatVec to_f32(hn::Vec<IntTag> q, int zero_point = 0) {
  return hn::ConvertTo(FloatTag(), hn::Sub(q, hn::Set(IntTag(), zero_point)));
}

/// Blocks of 32 elements: code · scale. Codes::load() yields codes i to i + kLanes of a block, less
/// the zero point.
template <class Codes>
struct ScaledBlocks {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t kBytes = Codes::kLayout.bytes;
  static constexpr std::size_t bytes(std::size_t k) { return k / 32 * kBytes; }
  static HWY_INLINE void load(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 32 * kBytes;
    const auto scale = broadcast_f16(block + Codes::kLayout.scale);
    a = hn::Mul(Codes::load(block, i % 32), scale);
    b = hn::Mul(Codes::load(block, i % 32 + kLanes), scale);
  }
};

/// Blocks of 32 elements: code · scale + minimum.
template <class Codes>
struct MinBlocks {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t kBytes = Codes::kLayout.bytes;
  static constexpr std::size_t bytes(std::size_t k) { return k / 32 * kBytes; }
  static HWY_INLINE void load(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 32 * kBytes;
    const auto scale = broadcast_f16(block + Codes::kLayout.scale);
    const auto min = broadcast_f16(block + Codes::kLayout.min);
    a = hn::MulAdd(Codes::load(block, i % 32), scale, min);
    b = hn::MulAdd(Codes::load(block, i % 32 + kLanes), scale, min);
  }
};

/// Q4_0 and Q4_1.
template <quant::BlockLayout L>
struct FourBitCodes {
  static constexpr quant::BlockLayout kLayout = L;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return to_f32(nibbles(block + L.codes, i), L.zero_point);
  }
};

/// Q5_0 and Q5_1.
template <quant::BlockLayout L>
struct FiveBitCodes {
  static constexpr quant::BlockLayout kLayout = L;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    const auto fifth = fifth_bits(block + L.high_bits, i);
    return to_f32(hn::Or(nibbles(block + L.codes, i), fifth), L.zero_point);
  }
};

struct CodesQ8_0 {
  static constexpr quant::BlockLayout kLayout = quant::kQ8_0;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return kernels::HWY_NAMESPACE::load_i8(block + kLayout.codes + i);
  }
};

struct FloatTable {
  alignas(64) float values[16];
  explicit constexpr FloatTable(const std::int8_t (&from)[16]) : values() {
    for (int i = 0; i < 16; ++i) values[i] = from[i];
  }
};
inline constexpr FloatTable kIq4Table(quant::kIq4Values), kFp4Table(quant::kFp4Values);

/// IQ4_NL and FP4.
template <quant::BlockLayout L, const FloatTable& table>
struct TableCodes {
  static constexpr quant::BlockLayout kLayout = L;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i) {
    return hn::GatherIndex(FloatTag(), table.values, nibbles(block + L.codes, i));
  }
};

using WeightsQ4_0 = ScaledBlocks<FourBitCodes<quant::kQ4_0>>;
using WeightsQ4_1 = MinBlocks<FourBitCodes<quant::kQ4_1>>;
using WeightsQ5_0 = ScaledBlocks<FiveBitCodes<quant::kQ5_0>>;
using WeightsQ5_1 = MinBlocks<FiveBitCodes<quant::kQ5_1>>;
using WeightsQ8_0 = ScaledBlocks<CodesQ8_0>;
using WeightsIq4Nl = ScaledBlocks<TableCodes<quant::kIq4Nl, kIq4Table>>;
using WeightsFp4 = ScaledBlocks<TableCodes<quant::kFp4, kFp4Table>>;

// K types: blocks of 256 elements in groups with an integer scale each.

/// Loads kLanes bytes, shifts each right and masks it.
HWY_INLINE hn::Vec<IntTag> load_bits(const std::byte* p, std::size_t shift, int mask) {
  return hn::And(hn::ShiftRightSame(load_u8(p), static_cast<int>(shift)), hn::Set(IntTag(), mask));
}

/// Two-bit codes from number `at` of 256 on: 32 bytes hold each 128, two bits above the other.
HWY_INLINE hn::Vec<IntTag> two_bits(const std::byte* p, std::size_t at) {
  return load_bits(p + at / 128 * 32 + at % 32, at / 32 % 4 * 2, 3);
}

/// The float16 at p times an integer scale.
HWY_INLINE FloatVec group_scale(const std::byte* p, int scale) {
  return hn::Mul(broadcast_f16(p), hn::Set(FloatTag(), static_cast<float>(scale)));
}

/// Q4_K and Q5_K: groups of 32 with six-bit scales and minima.
template <quant::BlockLayout L>
struct Group32Blocks {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t kBytes = L.bytes;
  static constexpr std::size_t bytes(std::size_t k) { return k / 256 * kBytes; }
  static HWY_INLINE void load(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 256 * kBytes;
    const std::size_t at = i % 256, g = at / 32;
    const auto* p = reinterpret_cast<const std::uint8_t*>(block + L.group_scales);
    const int s = g < 4 ? p[g] & 63 : (p[g + 4] & 15) | (p[g - 4] >> 6 << 4);
    const int m = g < 4 ? p[g + 4] & 63 : (p[g + 4] >> 4) | (p[g] >> 6 << 4);
    const auto scale = group_scale(block + L.scale, s), min = group_scale(block + L.min, m);
    a = hn::MulSub(codes(block, at), scale, min);
    b = hn::MulSub(codes(block, at + kLanes), scale, min);
  }
  static HWY_INLINE FloatVec codes(const std::byte* block, std::size_t at) {
    auto q = load_bits(block + L.codes + at / 64 * 32 + at % 32, at / 32 % 2 * 4, 15);
    if constexpr (L.has_high_bits()) {
      q = hn::Or(q, hn::ShiftLeft<4>(load_bits(block + L.high_bits + at % 32, at / 32, 1)));
    }
    return to_f32(q);
  }
};
using WeightsQ4_K = Group32Blocks<quant::kQ4_K>;
using WeightsQ5_K = Group32Blocks<quant::kQ5_K>;

/// K types with groups of 16: a vector never straddles two. Elements::load() yields elements `at`
/// to at + kLanes of a block.
template <class Elements>
struct Group16Blocks {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t kBytes = Elements::kLayout.bytes;
  static constexpr std::size_t bytes(std::size_t k) { return k / 256 * kBytes; }
  static HWY_INLINE void load(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 256 * kBytes;
    a = Elements::load(block, i % 256);
    b = Elements::load(block, i % 256 + kLanes);
  }
};

struct ElementsQ2_K {
  static constexpr quant::BlockLayout kLayout = quant::kQ2_K;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    const auto scales = std::to_integer<int>(block[kLayout.group_scales + at / 16]);
    return hn::MulSub(to_f32(two_bits(block + kLayout.codes, at)),
                      group_scale(block + kLayout.scale, scales & 15),
                      group_scale(block + kLayout.min, scales >> 4));
  }
};

struct ElementsQ3_K {
  static constexpr quant::BlockLayout kLayout = quant::kQ3_K;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    const std::size_t g = at / 16;
    const auto* scales = reinterpret_cast<const std::uint8_t*>(block + kLayout.group_scales);
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    const int high = (scales[8 + g % 4] >> (g / 4 * 2)) & 3;
    const auto third = load_bits(block + kLayout.high_bits + at % 32, at / 32, 1);
    const auto q = hn::Or(two_bits(block + kLayout.codes, at), hn::ShiftLeft<2>(third));
    return hn::Mul(to_f32(q, kLayout.zero_point),
                   group_scale(block + kLayout.scale, (low | (high << 4)) - 32));
  }
};

struct ElementsQ6_K {
  static constexpr quant::BlockLayout kLayout = quant::kQ6_K;
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    const std::byte* codes = block + kLayout.codes;
    const auto low = load_bits(codes + at / 128 * 64 + at % 64, at / 64 % 2 * 4, 15);
    const auto q = hn::Or(low, hn::ShiftLeft<4>(two_bits(block + kLayout.high_bits, at)));
    const auto scale = static_cast<std::int8_t>(block[kLayout.group_scales + at / 16]);
    return hn::Mul(to_f32(q, kLayout.zero_point), group_scale(block + kLayout.scale, scale));
  }
};

using WeightsQ2_K = Group16Blocks<ElementsQ2_K>;
using WeightsQ3_K = Group16Blocks<ElementsQ3_K>;
using WeightsQ6_K = Group16Blocks<ElementsQ6_K>;

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#endif
