// Reading stored rows into vectors, one struct for each storage type.
//
// A row is read in steps of 2 kLanes numbers, two vectors a step, in the order that costs least:
// the *packed order* of the type. A query is packed into the order of the keys once; sums of values
// stay packed until the end. position(i) is the place in the row of packed number i.
#if defined(BALLAST_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KERNELS_ROWS_INL_H_
#undef BALLAST_KERNELS_ROWS_INL_H_
#else
#define BALLAST_KERNELS_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ballast/storage.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kStep = 2 * kLanes;

struct ReadF32 {
  static constexpr std::size_t bytes(std::size_t numbers) { return 4 * numbers; }
  static constexpr std::size_t position(std::size_t i) { return i; }
  static HWY_INLINE void step(const std::byte* at, const std::uint16_t*, std::size_t, std::size_t,
                              FloatVec& a, FloatVec& b) {
    const auto* p = reinterpret_cast<const float*>(at);
    a = hn::LoadU(FloatTag(), p);
    b = hn::LoadU(FloatTag(), p + kLanes);
  }
};

struct ReadBf16 {
  static constexpr std::size_t bytes(std::size_t numbers) { return 2 * numbers; }
  static constexpr std::size_t position(std::size_t i) {
    const std::size_t r = i % kStep;
    return i - r + (r < kLanes ? 2 * r : 2 * (r - kLanes) + 1);
  }
  static HWY_INLINE void step(const std::byte* at, const std::uint16_t*, std::size_t, std::size_t,
                              FloatVec& a, FloatVec& b) {
    load_bf16_pairs(at, a, b);
  }
};

struct ReadF16 {
  static constexpr std::size_t bytes(std::size_t numbers) { return 2 * numbers; }
  static constexpr std::size_t position(std::size_t i) { return i; }
  static HWY_INLINE void step(const std::byte* at, const std::uint16_t*, std::size_t, std::size_t,
                              FloatVec& a, FloatVec& b) {
    a = load_f16(at);
    b = load_f16(at + 2 * kLanes);
  }
};

struct ReadInt8 {
  static constexpr std::size_t bytes(std::size_t numbers) { return numbers; }
  static constexpr std::size_t position(std::size_t i) { return i; }
  static HWY_INLINE void step(const std::byte* at, const std::uint16_t* scales, std::size_t,
                              std::size_t i, FloatVec& a, FloatVec& b) {
    const auto scale = hn::Set(FloatTag(), bf16_to_float(scales[i / kQuantGroup]));
    a = hn::Mul(load_i8(at), scale);
    b = hn::Mul(load_i8(at + kLanes), scale);
  }
};

// Byte j of a group's 16 holds number j in its low half and number 16 + j in its high half.
struct ReadInt4 {
  static constexpr std::size_t bytes(std::size_t numbers) { return numbers / 2; }
  static constexpr std::size_t position(std::size_t i) {
    const std::size_t r = i % kStep;
    const std::size_t group = i / kQuantGroup * kQuantGroup;
    const std::size_t byte = i % kQuantGroup / kStep * kLanes + r % kLanes;
    return group + byte + (r < kLanes ? 0 : kQuantGroup / 2);
  }
  static HWY_INLINE void step(const std::byte* at, const std::uint16_t* scales, std::size_t groups,
                              std::size_t i, FloatVec& a, FloatVec& b) {
    const FloatTag d;
    const auto scale = hn::Set(d, bf16_to_float(scales[i / kQuantGroup]));
    const auto offset = hn::Set(d, bf16_to_float(scales[groups + i / kQuantGroup]));
    load_nibbles(at, a, b);
    a = hn::MulAdd(a, scale, offset);
    b = hn::MulAdd(b, scale, offset);
  }
};

/// Rows of one storage type, step by step.
template <class Read>
struct RowReader {
  explicit RowReader(const RowsView& view)
      : view(view),
        groups((view.dim + kQuantGroup - 1) / kQuantGroup),
        scales_per_row(row_scales(view.type, view.dim)) {
    // Steps that lie wholly in the stored bytes; a rest takes the slow road. Quantised groups of
    // int4 are always stored whole.
    const std::size_t stored = view.type == StorageType::int4 ? groups * kQuantGroup : view.dim;
    whole_steps = stored / kStep;
    steps = (stored + kStep - 1) / kStep;
    rest_bytes = Read::bytes(stored - whole_steps * kStep);
  }

  const std::byte* row(std::size_t r) const { return view.data + r * view.stride; }
  const std::uint16_t* scales(std::size_t r) const { return view.scales + r * scales_per_row; }

  HWY_INLINE void whole(const std::byte* row, const std::uint16_t* scales, std::size_t step,
                        FloatVec& a, FloatVec& b) const {
    Read::step(row + step * Read::bytes(kStep), scales, groups, step * kStep, a, b);
  }
  /// The step after the last whole one, zeros behind the end of the row.
  HWY_INLINE void rest(const std::byte* row, const std::uint16_t* scales, FloatVec& a,
                       FloatVec& b) const {
    HWY_ALIGN std::byte buffer[Read::bytes(kStep)] = {};
    std::memcpy(buffer, row + whole_steps * Read::bytes(kStep), rest_bytes);
    Read::step(buffer, scales, groups, whole_steps * kStep, a, b);
  }

  const RowsView& view;
  std::size_t groups;
  std::size_t scales_per_row;
  std::size_t whole_steps;
  std::size_t steps;
  std::size_t rest_bytes;
};

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#endif
