#include "storage/rows_bytes.h"

#include <algorithm>
#include <vector>

#include "base/checks.h"
#include "base/fail.h"

namespace ballast {

void save_rows(ByteWriter& out, const RowsView& rows) {
  const std::size_t scales = row_scales(rows.type, rows.dim);
  if (is_rotated(rows.type) && rows.rows > 0) {
    out.put(static_cast<std::uint8_t>(rows.mean != nullptr));
    if (rows.mean != nullptr) out.put_all<float>({rows.mean, rows.dim});
  }
  for (std::size_t i = 0; i < rows.rows; ++i) {
    out.write(rows.data + i * rows.stride, rows.stride);
    if (scales != 0) out.put_all<std::uint16_t>({rows.scales + i * scales, scales});
  }
}

namespace {

void load_mean(ByteReader& in, Rows& rows) {
  const auto has_mean = in.get<std::uint8_t>();
  require(has_mean <= 1, "{}: rows whose mean is marked {}: expected 0 or 1", in.what(), has_mean);
  if (has_mean == 0) {
    require(rows.mean().empty(), "{}: rows without the mean of those before them", in.what());
    return;
  }
  std::vector<float> mean(rows.dim());
  in.get_all<float>(mean);
  require(first_not_finite(mean) == mean.size(), "{}: a mean of rows is not finite", in.what());
  require(rows.mean().empty() || std::ranges::equal(mean, rows.mean()),
          "{}: rows with another mean than those before them", in.what());
  rows.set_mean(mean);
}

}  // namespace

void load_rows(ByteReader& in, Rows& rows, std::size_t begin, std::size_t count) {
  require(begin <= rows.capacity() && count <= rows.capacity() - begin,
          "{}: {} rows from row {} on where {} fit", in.what(), count, begin, rows.capacity());
  std::vector<float> row(rows.dim());
  if (is_rotated(rows.type()) && count > 0) load_mean(in, rows);
  for (std::size_t i = begin; i < begin + count; ++i) {
    in.get_all(rows.payload(i));
    if (!rows.scales(i).empty()) in.get_all(rows.scales(i));
    rows.view(i, 1).decode(0, row);
    require(first_not_finite(row) == row.size(), "{}: row {} holds a number that is not finite",
            in.what(), i);
  }
}

}  // namespace ballast
