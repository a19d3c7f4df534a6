// Reading stored rows into vectors, one struct for each storage type.
//
// A row is read in steps of 2 kLanes elements, two vectors a step, in the cheapest order: the
// *packed order* of the type. A query is packed once into the order of the keys (for integers, the
// order of the row). Sums of values stay packed until the end. position(i) is the index in the row
// of packed element i.
#if defined(BALLAST_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KERNELS_ROWS_INL_H_
#undef BALLAST_KERNELS_ROWS_INL_H_
#else
#define BALLAST_KERNELS_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attention/kernels/attention_kernels.h"
#include "ballast/storage.h"
#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kStep = 2 * kLanes;

struct ReadF32 {
  static constexpr std::size_t kScales = 0;  // bf16 scales and offsets per group
  static constexpr std::size_t bytes(std::size_t numbers) { return 4 * numbers; }
  static constexpr std::size_t position(std::size_t i) { return i; }
  static HWY_INLINE void step(const std::byte* at, const float*, std::size_t, std::size_t,
                              FloatVec& a, FloatVec& b) {
    const auto* p = reinterpret_cast<const float*>(at);
    a = hn::LoadU(FloatTag(), p);
    b = hn::LoadU(FloatTag(), p + kLanes);
  }
};

struct ReadBf16 {
  static constexpr std::size_t kScales = 0;
  static constexpr std::size_t bytes(std::size_t numbers) { return 2 * numbers; }
  static constexpr std::size_t position(std::size_t i) {
    const std::size_t r = i % kStep;
    return i - r + (r < kLanes ? 2 * r : 2 * (r - kLanes) + 1);
  }
  static HWY_INLINE void step(const std::byte* at, const float*, std::size_t, std::size_t,
                              FloatVec& a, FloatVec& b) {
    load_bf16_pairs(at, a, b);
  }
};

struct ReadF16 {
  static constexpr std::size_t kScales = 0;
  static constexpr std::size_t bytes(std::size_t numbers) { return 2 * numbers; }
  static constexpr std::size_t position(std::size_t i) { return i; }
  static HWY_INLINE void step(const std::byte* at, const float*, std::size_t, std::size_t,
                              FloatVec& a, FloatVec& b) {
    a = load_f16(at);
    b = load_f16(at + 2 * kLanes);
  }
};

struct ReadInt8 {
  static constexpr std::size_t kScales = 1;
  static constexpr std::size_t bytes(std::size_t numbers) { return numbers; }
  static constexpr std::size_t position(std::size_t i) { return i; }
  static HWY_INLINE void step(const std::byte* at, const float* scales, std::size_t, std::size_t i,
                              FloatVec& a, FloatVec& b) {
    const auto scale = hn::Set(FloatTag(), scales[i / kQuantGroup]);
    a = hn::Mul(load_i8(at), scale);
    b = hn::Mul(load_i8(at + kLanes), scale);
  }
  // Elements s · kStep … of a group, in the order of the row.
  template <std::size_t s>
  static HWY_INLINE ShortVec integers(const std::byte* group) {
    return load_i8_as_i16(group + s * kStep);
  }
};

// Byte j of a group's 16 holds element j in its low nibble and element 16 + j in its high nibble.
struct ReadInt4 {
  static constexpr std::size_t kScales = 2;
  static constexpr std::size_t bytes(std::size_t numbers) { return numbers / 2; }
  static constexpr std::size_t position(std::size_t i) {
    const std::size_t r = i % kStep;
    const std::size_t group = i / kQuantGroup * kQuantGroup;
    const std::size_t byte = i % kQuantGroup / kStep * kLanes + r % kLanes;
    return group + byte + (r < kLanes ? 0 : kQuantGroup / 2);
  }
  static HWY_INLINE void step(const std::byte* at, const float* scales, std::size_t groups,
                              std::size_t i, FloatVec& a, FloatVec& b) {
    const FloatTag d;
    const auto scale = hn::Set(d, scales[i / kQuantGroup]);
    const auto offset = hn::Set(d, scales[groups + i / kQuantGroup]);
    load_nibbles(at, a, b);
    a = hn::MulAdd(a, scale, offset);
    b = hn::MulAdd(b, scale, offset);
  }
  template <std::size_t s>
  static HWY_INLINE ShortVec integers(const std::byte* group) {
    return load_nibbles_as_i16<s>(group);
  }
};

/// A block of rows of one storage type, read step by step.
template <class Read>
class RowReader {
 public:
  explicit RowReader(const RowsView& rows) : rows_(rows), groups_(quant_groups(rows.dim)) {
    // int4 groups are always stored whole. A remainder after the whole steps takes the slow path.
    const std::size_t stored = rows.type == StorageType::int4 ? groups_ * kQuantGroup : rows.dim;
    whole_steps_ = stored / kStep;
    steps_ = (stored + kStep - 1) / kStep;
    rest_bytes_ = Read::bytes(stored - whole_steps_ * kStep);
    if constexpr (Read::kScales > 0) {
      scales_per_row_ = Read::kScales * groups_;
      decode_bf16(rows.scales, rows.rows * scales_per_row_, scale_buffer_);
      std::fill_n(scale_buffer_ + rows.rows * scales_per_row_, kLanes, 0.0f);
    }
  }

  const RowsView& view() const { return rows_; }
  std::size_t rows() const { return rows_.rows; }
  std::size_t dim() const { return rows_.dim; }
  std::size_t whole_steps() const { return whole_steps_; }
  std::size_t steps() const { return steps_; }
  const std::byte* row(std::size_t r) const { return rows_.data + r * rows_.stride; }
  /// kLanes zeros follow the scales of the last row.
  const float* scales(std::size_t r) const { return scale_buffer_ + r * scales_per_row_; }
  std::size_t groups() const { return groups_; }

  HWY_INLINE void whole(const std::byte* row, const float* scales, std::size_t step, FloatVec& a,
                        FloatVec& b) const {
    Read::step(row + step * Read::bytes(kStep), scales, groups_, step * kStep, a, b);
  }
  /// The step after the last whole one, padded with zeros past the end of the row.
  HWY_INLINE void rest(const std::byte* row, const float* scales, FloatVec& a, FloatVec& b) const {
    HWY_ALIGN std::byte buffer[Read::bytes(kStep)] = {};
    std::memcpy(buffer, row + whole_steps_ * Read::bytes(kStep), rest_bytes_);
    Read::step(buffer, scales, groups_, whole_steps_ * kStep, a, b);
  }

 private:
  static constexpr std::size_t kBuffer =
      Read::kScales == 0 ? 1 : Read::kScales * kEntryBlock * (kMaxDim / kQuantGroup) + kLanes;

  RowsView rows_;
  std::size_t groups_;
  std::size_t whole_steps_;
  std::size_t steps_;
  std::size_t rest_bytes_;
  std::size_t scales_per_row_ = 0;
  float scale_buffer_[kBuffer];
};

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#endif
