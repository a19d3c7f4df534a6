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

#include "kernels/vector-inl.h"

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

struct WeightsQ8_0 {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t bytes(std::size_t n) { return n / 32 * 34; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 32 * 34;
    const auto scale = broadcast_f16(block);
    const std::byte* p = block + 2 + i % 32;
    a = hn::Mul(kernels::HWY_NAMESPACE::load_i8(p), scale);
    b = hn::Mul(kernels::HWY_NAMESPACE::load_i8(p + kLanes), scale);
  }
};

struct WeightsQ4_0 {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t bytes(std::size_t n) { return n / 32 * 18; }
  // Numbers 0 to 15 lie in the low halves of 16 bytes, 16 to 31 in the high halves.
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t i, FloatVec scale) {
    auto q = load_u8(block + 2 + i % 16);
    q = i < 16 ? hn::And(q, hn::Set(IntTag(), 15)) : hn::ShiftRight<4>(q);
    return hn::Mul(hn::ConvertTo(FloatTag(), hn::Sub(q, hn::Set(IntTag(), 8))), scale);
  }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 32 * 18;
    const auto scale = broadcast_f16(block);
    a = load(block, i % 32, scale);
    b = load(block, i % 32 + kLanes, scale);
  }
};

struct WeightsQ4_K {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t bytes(std::size_t n) { return n / 256 * 144; }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 256 * 144;
    const std::size_t at = i % 256, g = at / 32;
    // Scale and offset of group g, six bits each.
    const auto* p = reinterpret_cast<const std::uint8_t*>(block + 4);
    const int s = g < 4 ? p[g] & 63 : (p[g + 4] & 15) | (p[g - 4] >> 6 << 4);
    const int m = g < 4 ? p[g + 4] & 63 : (p[g + 4] >> 4) | (p[g] >> 6 << 4);
    const FloatTag d;
    const auto scale = hn::Mul(broadcast_f16(block), hn::Set(d, static_cast<float>(s)));
    const auto offset = hn::Mul(broadcast_f16(block + 2), hn::Set(d, static_cast<float>(m)));
    const std::byte* q = block + 16 + at / 64 * 32 + at % 32;
    a = hn::MulSub(nibbles(q, g % 2), scale, offset);
    b = hn::MulSub(nibbles(q + kLanes, g % 2), scale, offset);
  }
  static HWY_INLINE FloatVec nibbles(const std::byte* p, std::size_t high) {
    auto q = load_u8(p);
    q = high != 0 ? hn::ShiftRight<4>(q) : hn::And(q, hn::Set(IntTag(), 15));
    return hn::ConvertTo(FloatTag(), q);
  }
};

struct WeightsQ6_K {
  static constexpr bool kBlocks = true;
  static constexpr std::size_t bytes(std::size_t n) { return n / 256 * 210; }
  static HWY_INLINE FloatVec load(const std::byte* block, std::size_t at) {
    const IntTag di;
    auto low = load_u8(block + at / 128 * 64 + at % 64);
    low = at / 64 % 2 != 0 ? hn::ShiftRight<4>(low) : hn::And(low, hn::Set(di, 15));
    const auto two = load_u8(block + 128 + at / 128 * 32 + at % 32);
    const auto high =
        hn::And(hn::ShiftRightSame(two, static_cast<int>(at / 32 % 4 * 2)), hn::Set(di, 3));
    const auto q = hn::Sub(hn::Or(low, hn::ShiftLeft<4>(high)), hn::Set(di, 32));
    const auto scale = static_cast<std::int8_t>(block[192 + at / 16]);
    const auto d =
        hn::Mul(broadcast_f16(block + 208), hn::Set(FloatTag(), static_cast<float>(scale)));
    return hn::Mul(hn::ConvertTo(FloatTag(), q), d);
  }
  static HWY_INLINE void step(const std::byte* row, std::size_t i, FloatVec& a, FloatVec& b) {
    const std::byte* block = row + i / 256 * 210;
    a = load(block, i % 256);
    b = load(block, i % 256 + kLanes);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#endif
