#include "kernels/distances.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/fail.h"
#include "kernels/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/distances.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

// Rows in flight at once.
inline constexpr std::size_t kRows = 4;

template <class Read>
void distances(const RowsView& rows, const float* point, float* out) {
  const FloatTag d;
  const RowReader<Read> reader(rows);
  for (std::size_t first = 0; first < rows.rows; first += kRows) {
    const std::byte* row[kRows];
    const std::uint16_t* scales[kRows];
    FloatVec sums[kRows];
    for (std::size_t k = 0; k < kRows; ++k) {
      const std::size_t r = std::min(first + k, rows.rows - 1);  // the last tile repeats a row
      row[k] = reader.row(r);
      scales[k] = reader.scales(r);
      sums[k] = hn::Zero(d);
    }
    auto add = [&](std::size_t k, std::size_t step, FloatVec a, FloatVec b) {
      const auto da = hn::Sub(a, hn::LoadU(d, point + step * kStep));
      const auto db = hn::Sub(b, hn::LoadU(d, point + step * kStep + kLanes));
      sums[k] = hn::MulAdd(db, db, hn::MulAdd(da, da, sums[k]));
    };
    FloatVec a, b;
    for (std::size_t s = 0; s < reader.whole_steps; ++s) {
      for (std::size_t k = 0; k < kRows; ++k) {
        reader.whole(row[k], scales[k], s, a, b);
        add(k, s, a, b);
      }
    }
    if (reader.whole_steps < reader.steps) {
      for (std::size_t k = 0; k < kRows; ++k) {
        reader.rest(row[k], scales[k], a, b);
        add(k, reader.whole_steps, a, b);
      }
    }
    HWY_ALIGN float four[kRows];
    store_four_sums(d, sums[0], sums[1], sums[2], sums[3], four);
    std::copy_n(four, std::min(kRows, rows.rows - first), out + first);
  }
}

void SquaredDistances(const RowsView& rows, const float* point, float* out) {
  switch (rows.type) {
    case StorageType::f32:
      return distances<ReadF32>(rows, point, out);
    case StorageType::bf16:
      return distances<ReadBf16>(rows, point, out);
    case StorageType::f16:
      return distances<ReadF16>(rows, point, out);
    case StorageType::int8:
      return distances<ReadInt8>(rows, point, out);
    case StorageType::int4:
      return distances<ReadInt4>(rows, point, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {

HWY_EXPORT(SquaredDistances);

// The numbers that pad a group of int4 need not be zero, so they may not enter a difference.
void decoded_distances(const RowsView& rows, std::span<const float> point, std::span<float> out) {
  std::vector<float> row(rows.dim);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    rows.decode(i, row);
    float sum = 0.0f;
    for (std::size_t c = 0; c < row.size(); ++c) sum += (row[c] - point[c]) * (row[c] - point[c]);
    out[i] = sum;
  }
}

}  // namespace

void squared_distances(const RowsView& rows, std::span<const float> point, std::span<float> out) {
  require(point.size() == rows.dim && out.size() >= rows.rows,
          "distances of {} rows of {} numbers from a point of {} into {} numbers", rows.rows,
          rows.dim, point.size(), out.size());
  if (rows.rows == 0) return;
  if (rows.type == StorageType::int4 && rows.dim % kQuantGroup != 0) {
    return decoded_distances(rows, point, out);
  }
  constexpr std::size_t kUsual = 256;
  std::array<float, kUsual> usual;
  std::vector<float> large(packed_size(rows.dim) > kUsual ? packed_size(rows.dim) : 0);
  float* packed = large.empty() ? usual.data() : large.data();
  pack(rows.type, point, packed);
  HWY_DYNAMIC_DISPATCH(SquaredDistances)(rows, packed, out.data());
}

}  // namespace ballast::kernels
#endif
