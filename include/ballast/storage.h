// Rows of keys or values in memory, in one of eight storage types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

class RowMean;

/// The index of a token in its text, from 0.
using Position = std::int32_t;

/// How the elements of a row are stored. int8 and int4 keep one scale per group of 32 elements
/// (int4 also one offset): 1.0625 and 0.625 bytes an element. q4, q3 and q2 rotate the row and keep
/// codes of 4, 3 or 2 bits and one scale a row: their relative squared error on normal rows is
/// 0.0095, 0.0345 and 0.1175. Saved caches hold these values: append only.
enum class StorageType : std::uint8_t { f32, bf16, f16, int8, int4, q4, q3, q2 };

/// Whether rows of the type are rotated before they are quantized.
constexpr bool is_rotated(StorageType type) {
  return type == StorageType::q4 || type == StorageType::q3 || type == StorageType::q2;
}

/// Whether rows of the type have so few bits that they are stored relative to a mean (RowMean), and
/// that the first tokens of a text are not rounded to it.
constexpr bool is_low_bit(StorageType type) {
  return is_rotated(type) || type == StorageType::int4;
}

/// Elements that share a scale in int8 and int4.
inline constexpr std::size_t kQuantGroup = 32;

std::string_view to_string(StorageType type);

/// Any case; other programs' names too (fp16, q8_0). Throws Error that lists the known names.
StorageType parse_storage_type(std::string_view name);

/// Groups of a row in int8 and int4; the last one may be filled up.
constexpr std::size_t quant_groups(std::size_t dim) {
  return (dim + kQuantGroup - 1) / kQuantGroup;
}

/// Bytes of the payload of one row. Padded to a multiple of 16, but for q4, q3 and q2: padding
/// would cost q2 at dimension 80 a fourth.
constexpr std::size_t row_bytes(StorageType type, std::size_t dim) {
  if (type == StorageType::q4) return (dim + 1) / 2;
  if (type == StorageType::q3) return (dim + 3) / 4 + (dim + 7) / 8;
  if (type == StorageType::q2) return (dim + 3) / 4;
  const std::size_t bytes = type == StorageType::f32    ? 4 * dim
                            : type == StorageType::int8 ? dim
                            : type == StorageType::int4 ? quant_groups(dim) * (kQuantGroup / 2)
                                                        : 2 * dim;
  return (bytes + 15) / 16 * 16;
}

/// bfloat16 words of scale (and offset) that go with one row: 0 for the float types.
constexpr std::size_t row_scales(StorageType type, std::size_t dim) {
  return type == StorageType::int8   ? quant_groups(dim)
         : type == StorageType::int4 ? 2 * quant_groups(dim)
         : is_rotated(type)          ? 1
                                     : 0;
}

/// Bytes of one stored row: payload, scales and offsets.
constexpr std::size_t stored_row_bytes(StorageType type, std::size_t dim) {
  return row_bytes(type, dim) + row_scales(type, dim) * sizeof(std::uint16_t);
}

/// Read-only view of consecutive stored rows. What lies in the padding of a row is never used as a
/// number of it but may be read (not at f32, whose rows need no padding).
struct RowsView {
  StorageType type = StorageType::f32;
  std::size_t rows = 0;
  std::size_t dim = 0;
  std::size_t stride = 0;                 ///< bytes from one row's payload to the next
  const std::byte* data = nullptr;        ///< payload of row 0
  const std::uint16_t* scales = nullptr;  ///< bfloat16, row_scales() a row, contiguous;
                                          ///< int4: all scales of a row, then all its offsets
  /// What the rows are relative to (types with scales only), or null.
  const RowMean* mean = nullptr;
  /// Where the rows stand in the text: positions[i] when given; else as `gaps` code it
  /// (storage/gap_code.h), row by row; else first_position + i. Only rows relative to a mean that
  /// turns need it.
  const Position* positions = nullptr;
  const std::uint8_t* gaps = nullptr;
  Position first_position = -1;  ///< negative: unknown

  /// A view of part of the rows; with `gaps` it has no positions unless begin is 0.
  RowsView slice(std::size_t begin, std::size_t count) const {
    RowsView part = *this;
    part.rows = count;
    part.data = data + begin * stride;
    if (scales != nullptr) part.scales = scales + begin * row_scales(type, dim);
    if (positions != nullptr) part.positions = positions + begin;
    if (first_position >= 0) part.first_position += static_cast<Position>(begin);
    if (begin > 0) part.gaps = nullptr;
    return part;
  }
  /// Of row i; with `gaps` it takes time in proportion to i.
  Position position(std::size_t i) const;
  /// Row i as float32; out holds dim numbers.
  void decode(std::size_t i, std::span<float> out) const;
  /// All rows as float32 into the rows of out.
  void decode(MutableMatrix out) const;
  /// Row i without what it is relative to.
  void decode_difference(std::size_t i, std::span<float> out) const;
};

/// A view of float32 rows that someone else holds.
RowsView view_f32(ConstMatrix rows);

/// Gives the memory of rows back to where it is from.
struct FreeRows {
  enum class From : std::uint8_t { heap, large_pages, own_pages, elsewhere };
  From from = From::heap;
  std::size_t bytes = 0;  ///< own_pages: those allocated
  void operator()(std::byte* rows) const;
};

/// A preallocated store of up to capacity() rows, in pages of 2 MiB where the system gives them.
/// set() rounds to the storage type: bf16 and f16 to nearest even, saturating at their largest
/// number (f16: ±65504); int8 and int4 to the nearest step of the group, whose scale is rounded up
/// so that nothing is cut off (below 1.4e38; larger numbers saturate); q4, q3 and q2 to the nearest
/// codeword (larger numbers than 6.6e35 saturate). Setting a row of at most 256 elements allocates
/// nothing.
class Rows {
 public:
  Rows() = default;
  Rows(StorageType type, std::size_t dim, std::size_t capacity);
  /// In memory of memory_for() bytes, aligned to kAlignment, that someone else holds and keeps as
  /// long as these rows. Rows that grow leave it.
  Rows(StorageType type, std::size_t dim, std::size_t capacity, std::byte* memory);
  /// Bytes of the payloads, up to a multiple of kAlignment, and of the scales. Throws Error if they
  /// are too many.
  static std::size_t memory_for(StorageType type, std::size_t dim, std::size_t capacity);

  StorageType type() const { return type_; }
  std::size_t dim() const { return dim_; }
  std::size_t capacity() const { return capacity_; }
  /// Bytes allocated, scales included; the mean, which the rows of a head share, is not.
  std::size_t bytes() const { return capacity_ * stored_row_bytes(type_, dim_); }

  /// Makes rows relative to `mean`; null, and float types: they stay as they are. Call it
  /// before the first row is set. Throws Error for a mean of another size.
  void set_mean(std::shared_ptr<const RowMean> mean);
  const std::shared_ptr<const RowMean>& mean() const { return mean_; }

  /// Stores `dim` finite numbers as row i, of the token at `position`, which a mean that turns
  /// needs. Rows of other indices may be set at the same time.
  void set(std::size_t i, std::span<const float> row, Position position = -1);
  /// Copies row `from` of `source` (same type and mean: bit for bit; else through float32).
  void copy(std::size_t i, const RowsView& source, std::size_t from);
  /// Grows to `capacity` rows, keeping the first `used`.
  void grow(std::size_t capacity, std::size_t used);

  /// Without positions.
  RowsView view(std::size_t begin, std::size_t count) const;
  /// Of rows whose first stands at `first_position`, the others behind it.
  RowsView view(std::size_t begin, std::size_t count, Position first_position) const;
  /// Of rows that stand at `positions`.
  RowsView view(std::size_t begin, std::size_t count, const Position* positions) const;

  /// The stored form of row i, for those who save and restore it.
  std::span<std::byte> payload(std::size_t i) { return {data_.get() + i * stride_, stride_}; }
  std::span<std::uint16_t> scales(std::size_t i) {
    return {scales() + i * scales_per_row_, scales_per_row_};
  }

 private:
  std::uint16_t* scales() const {
    return reinterpret_cast<std::uint16_t*>(data_.get() + scales_begin_);
  }

  StorageType type_ = StorageType::f32;
  std::size_t dim_ = 0;
  std::size_t capacity_ = 0;
  std::size_t stride_ = 0;
  std::size_t scales_per_row_ = 0;
  std::size_t scales_begin_ = 0;  // in data_
  using Data = std::unique_ptr<std::byte[], FreeRows>;
  Data data_;  // all rows' numbers, then all rows' scales
  std::shared_ptr<const RowMean> mean_;
};

}  // namespace ballast
