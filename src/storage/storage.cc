#include "ballast/storage.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "ballast/row_mean.h"
#include "base/checks.h"
#include "base/fail.h"
#include "storage/gap_code.h"
#include "storage/rotated.h"
#include "storage/round.h"
#include "storage/row_memory.h"

namespace ballast {
namespace {

using kernels::bf16_decode;

constexpr std::array<std::string_view, 8> kNames = {"f32",  "bf16", "f16", "int8",
                                                    "int4", "q4",   "q3",  "q2"};

// Larger elements saturate in int8 and int4. The range of an int4 group is twice this, plus a
// little as its scale is rounded up, and must be finite.
constexpr float kQuantLimit = 0x1.Cp126f;

float limited(float x) { return std::clamp(x, -kQuantLimit, kQuantLimit); }

// Rounds an element of at most 2^22 to the nearest integer: adding 1.5·2^23 leaves it in the low
// bits.
std::uint32_t nearest_bits(float x) { return std::bit_cast<std::uint32_t>(x + 12582912.0f); }

void encode_int8(std::span<const float> group, std::int8_t* out, std::uint16_t& scale) {
  float largest = 0.0f;
  for (float x : group) largest = std::max(largest, std::abs(x));
  scale = kernels::bf16_encode_up(static_cast<double>(std::min(largest, kQuantLimit)) / 127.0);
  // Divides, since the inverse overflows when the scale is subnormal.
  const float step = scale == 0 ? 1.0f : bf16_decode(scale);
  for (std::size_t i = 0; i < group.size(); ++i) {
    out[i] = static_cast<std::int8_t>(nearest_bits(limited(group[i]) / step));
  }
}

// Byte j holds element j in its low nibble and element 16 + j in its high nibble.
void encode_int4(std::span<const float> group, std::uint8_t* out, std::uint16_t& scale,
                 std::uint16_t& offset) {
  float low = group[0], high = group[0];
  for (float x : group) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  offset = kernels::bf16_encode_down(limited(low));
  const double origin = bf16_decode(offset);
  scale = kernels::bf16_encode_up((limited(high) - origin) / 15.0);
  // Works on quarters, so that the difference of the extreme elements does not overflow.
  const float quarter_origin = 0.25f * bf16_decode(offset);
  const float quarter_step = scale == 0 ? 1.0f : 0.25f * bf16_decode(scale);
  std::array<std::uint8_t, kQuantGroup> digits{};
  for (std::size_t i = 0; i < group.size(); ++i) {
    const float digit = (0.25f * limited(group[i]) - quarter_origin) / quarter_step;
    digits[i] = static_cast<std::uint8_t>(nearest_bits(digit));
  }
  for (std::size_t j = 0; j < kQuantGroup / 2; ++j) {
    out[j] = static_cast<std::uint8_t>((digits[j] & 15u) | digits[j + kQuantGroup / 2] << 4);
  }
}

// `data` is aligned like the rows' elements; `scales` as in RowsView.
void encode_row(StorageType type, std::span<const float> row, bool averaged, std::byte* data,
                std::uint16_t* scales) {
  switch (type) {
    case StorageType::f32:
      std::copy(row.begin(), row.end(), reinterpret_cast<float*>(data));
      return;
    case StorageType::bf16: {
      auto* out = reinterpret_cast<std::uint16_t*>(data);
      for (std::size_t i = 0; i < row.size(); ++i) out[i] = kernels::bf16_encode(row[i]);
      return;
    }
    case StorageType::f16: {
      auto* out = reinterpret_cast<std::uint16_t*>(data);
      for (std::size_t i = 0; i < row.size(); ++i) out[i] = kernels::f16_encode(row[i]);
      return;
    }
    case StorageType::q4:
    case StorageType::q3:
    case StorageType::q2:
      *scales = encode_rotated(type, row, averaged, data);
      return;
    case StorageType::int8:
    case StorageType::int4:
      break;
  }
  const std::size_t groups = quant_groups(row.size());
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t begin = g * kQuantGroup;
    const auto group = row.subspan(begin, std::min(kQuantGroup, row.size() - begin));
    if (type == StorageType::int8) {
      encode_int8(group, reinterpret_cast<std::int8_t*>(data) + begin, scales[g]);
    } else {
      encode_int4(group, reinterpret_cast<std::uint8_t*>(data) + begin / 2, scales[g],
                  scales[groups + g]);
    }
  }
}

void decode_int8(const std::int8_t* codes, float scale, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(codes[i]) * scale;
}

void decode_int4(const std::uint8_t* bytes, float scale, float offset, std::span<float> out) {
  std::array<float, kQuantGroup> all;
  for (std::size_t j = 0; j < kQuantGroup / 2; ++j) {
    all[j] = static_cast<float>(bytes[j] & 15) * scale + offset;
    all[j + kQuantGroup / 2] = static_cast<float>(bytes[j] >> 4) * scale + offset;
  }
  std::copy_n(all.begin(), out.size(), out.begin());
}

void decode_row(StorageType type, const std::byte* data, const std::uint16_t* scales,
                std::span<float> out) {
  const std::size_t dim = out.size();
  switch (type) {
    case StorageType::f32:
      std::copy_n(reinterpret_cast<const float*>(data), dim, out.begin());
      return;
    case StorageType::bf16: {
      const auto* words = reinterpret_cast<const std::uint16_t*>(data);
      for (std::size_t i = 0; i < dim; ++i) out[i] = bf16_decode(words[i]);
      return;
    }
    case StorageType::f16: {
      const auto* words = reinterpret_cast<const std::uint16_t*>(data);
      for (std::size_t i = 0; i < dim; ++i) out[i] = kernels::f16_decode(words[i]);
      return;
    }
    case StorageType::q4:
    case StorageType::q3:
    case StorageType::q2:
      decode_rotated(type, data, *scales, out);
      return;
    case StorageType::int8:
    case StorageType::int4:
      break;
  }
  const std::size_t groups = quant_groups(dim);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t begin = g * kQuantGroup;
    const auto group = out.subspan(begin, std::min(kQuantGroup, dim - begin));
    if (type == StorageType::int8) {
      decode_int8(reinterpret_cast<const std::int8_t*>(data) + begin, bf16_decode(scales[g]),
                  group);
    } else {
      decode_int4(reinterpret_cast<const std::uint8_t*>(data) + begin / 2, bf16_decode(scales[g]),
                  bf16_decode(scales[groups + g]), group);
    }
  }
}

std::size_t checked_product(std::size_t a, std::size_t b) {
  require(b == 0 || a <= std::numeric_limits<std::size_t>::max() / 2 / b,
          "a store of {} rows of {} bytes is too large", a, b);
  return a * b;
}

// Where the scales of `capacity` rows begin.
std::size_t scales_after(std::size_t capacity, std::size_t stride) {
  const std::size_t numbers = checked_product(capacity, stride);
  return numbers + (kAlignment - numbers % kAlignment) % kAlignment;
}

}  // namespace

std::string_view to_string(StorageType type) { return kNames[static_cast<std::size_t>(type)]; }

StorageType parse_storage_type(std::string_view given) {
  std::string name(given);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<StorageType>(i);
  }
  // As other programs write them.
  static constexpr std::pair<std::string_view, StorageType> kOthers[] = {
      {"fp32", StorageType::f32},    {"float32", StorageType::f32}, {"fp16", StorageType::f16},
      {"float16", StorageType::f16}, {"half", StorageType::f16},    {"bfloat16", StorageType::bf16},
      {"q8_0", StorageType::int8},   {"q4_0", StorageType::int4},   {"q4_1", StorageType::int4}};
  for (const auto& [other, type] : kOthers) {
    if (other == name) return type;
  }
  fail("unknown storage type '{}': expected f32, bf16, f16, int8, int4, q4, q3 or q2", given);
}

namespace {

// Floats of one row; only long ones are allocated.
class RowBuffer {
 public:
  explicit RowBuffer(std::size_t dim) {
    if (dim > kOnStack) large_ = allocate_aligned<float>(dim);
  }
  float* data() { return large_ ? large_.get() : small_; }

 private:
  static constexpr std::size_t kOnStack = 256;
  float small_[kOnStack];
  AlignedArray<float> large_;
};

}  // namespace

Position RowsView::position(std::size_t i) const {
  if (positions != nullptr) return positions[i];
  if (gaps == nullptr) return first_position < 0 ? -1 : first_position + static_cast<Position>(i);
  GapReader reader(gaps);
  for (std::size_t skipped = 0; skipped < i; ++skipped) reader.next();
  return reader.next();
}

void RowsView::decode_difference(std::size_t i, std::span<float> out) const {
  const std::uint16_t* row_scale = scales == nullptr ? nullptr : scales + i * row_scales(type, dim);
  decode_row(type, data + i * stride, row_scale, out.first(dim));
}

void RowsView::decode(std::size_t i, std::span<float> out) const {
  decode_difference(i, out);
  if (mean == nullptr) return;
  RowBuffer buffer(dim);
  mean->at(mean->turns() == nullptr ? 0 : position(i), buffer.data());
  for (std::size_t c = 0; c < dim; ++c) out[c] += buffer.data()[c];
}

void RowsView::decode(MutableMatrix out) const {
  if (gaps == nullptr || mean == nullptr) {
    for (std::size_t i = 0; i < rows; ++i) decode(i, out[i]);
    return;
  }
  std::vector<Position> all(rows);
  decode_gaps(gaps, all);
  RowsView placed = *this;
  placed.positions = all.data();
  placed.gaps = nullptr;
  placed.decode(out);
}

RowsView view_f32(ConstMatrix rows) {
  RowsView view;
  view.rows = rows.rows;
  view.dim = rows.cols;
  view.stride = rows.stride * sizeof(float);
  view.data = reinterpret_cast<const std::byte*>(rows.data);
  return view;
}

Rows::Rows(StorageType type, std::size_t dim, std::size_t capacity)
    : type_(type),
      dim_(dim),
      stride_(row_bytes(type, dim)),
      scales_per_row_(row_scales(type, dim)) {
  grow(capacity, 0);
}

Rows::Rows(StorageType type, std::size_t dim, std::size_t capacity, std::byte* memory)
    : type_(type),
      dim_(dim),
      capacity_(capacity),
      stride_(row_bytes(type, dim)),
      scales_per_row_(row_scales(type, dim)),
      scales_begin_(scales_after(capacity, stride_)),
      data_(memory, FreeRows{FreeRows::From::elsewhere}) {
  std::memset(memory, 0, capacity * stride_);  // as in grow()
}

std::size_t Rows::memory_for(StorageType type, std::size_t dim, std::size_t capacity) {
  return scales_after(capacity, row_bytes(type, dim)) +
         checked_product(capacity, row_scales(type, dim) * sizeof(std::uint16_t));
}

void Rows::set_mean(std::shared_ptr<const RowMean> mean) {
  if (scales_per_row_ == 0) return;
  require(mean == nullptr || mean->mean().size() == dim_, "a mean of {} elements for rows of {}",
          mean == nullptr ? 0 : mean->mean().size(), dim_);
  mean_ = std::move(mean);
}

void Rows::set(std::size_t i, std::span<const float> row, Position position) {
  const auto encode = [&](std::span<const float> x) {
    encode_row(type_, x, mean_ != nullptr && mean_->averaged(), data_.get() + i * stride_,
               scales() + i * scales_per_row_);
  };
  if (mean_ == nullptr) return encode(row.first(dim_));
  RowBuffer buffer(dim_);
  mean_->at(position, buffer.data());
  for (std::size_t c = 0; c < dim_; ++c) buffer.data()[c] = row[c] - buffer.data()[c];
  encode({buffer.data(), dim_});
}

void Rows::copy(std::size_t i, const RowsView& source, std::size_t from) {
  require(source.dim == dim_, "cannot copy a row of {} numbers into a store of rows of {}",
          source.dim, dim_);
  const bool same_mean = source.mean == mean_.get() ||
                         (source.mean != nullptr && mean_ != nullptr && *source.mean == *mean_);
  if (source.type == type_ && same_mean) {
    // An f32 view may be padded less than the store.
    const std::size_t payload = type_ == StorageType::f32 ? 4 * dim_ : stride_;
    std::memcpy(data_.get() + i * stride_, source.data + from * source.stride, payload);
    if (scales_per_row_ > 0) {
      std::memcpy(scales() + i * scales_per_row_, source.scales + from * scales_per_row_,
                  scales_per_row_ * sizeof(std::uint16_t));
    }
    return;
  }
  RowBuffer row(dim_);
  if (same_mean) {
    source.decode_difference(from, {row.data(), dim_});
    encode_row(type_, {row.data(), dim_}, mean_ != nullptr && mean_->averaged(),
               data_.get() + i * stride_, scales() + i * scales_per_row_);
  } else {
    source.decode(from, {row.data(), dim_});
    set(i, {row.data(), dim_}, source.position(from));
  }
}

void Rows::grow(std::size_t capacity, std::size_t used) {
  const std::size_t begin = scales_after(capacity, stride_);
  const std::size_t row_of_scales = scales_per_row_ * sizeof(std::uint16_t);
  Data data = allocate_rows(memory_for(type_, dim_, capacity));
  if (used > 0) {
    std::memcpy(data.get(), data_.get(), used * stride_);
    std::memcpy(data.get() + begin, data_.get() + scales_begin_, used * row_of_scales);
  }
  // Row padding stays zero, so that it is finite in every type.
  std::memset(data.get() + used * stride_, 0, (capacity - used) * stride_);
  data_ = std::move(data);
  scales_begin_ = begin;
  capacity_ = capacity;
}

RowsView Rows::view(std::size_t begin, std::size_t count) const {
  RowsView all{type_, capacity_, dim_, stride_, data_.get(), nullptr};
  if (scales_per_row_ > 0) all.scales = scales();
  all.mean = mean_.get();
  return all.slice(begin, count);
}

RowsView Rows::view(std::size_t begin, std::size_t count, Position first_position) const {
  RowsView rows = view(begin, count);
  rows.first_position = first_position;
  return rows;
}

RowsView Rows::view(std::size_t begin, std::size_t count, const Position* positions) const {
  RowsView rows = view(begin, count);
  rows.positions = positions;
  return rows;
}

}  // namespace ballast
