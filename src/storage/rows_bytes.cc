#include "storage/rows_bytes.h"

#include <vector>

#include "base/checks.h"
#include "base/fail.h"

namespace ballast {

void save_rows(ByteWriter& out, const RowsView& rows) {
  const std::size_t scales = row_scales(rows.type, rows.dim);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    out.write(rows.data + i * rows.stride, rows.stride);
    if (scales != 0) out.put_all<std::uint16_t>({rows.scales + i * scales, scales});
  }
}

void load_rows(ByteReader& in, Rows& rows, std::size_t begin, std::size_t count) {
  require(begin <= rows.capacity() && count <= rows.capacity() - begin,
          "{}: {} rows from row {} on where {} fit", in.what(), count, begin, rows.capacity());
  std::vector<float> row(rows.dim());
  for (std::size_t i = begin; i < begin + count; ++i) {
    in.get_all(rows.payload(i));
    if (!rows.scales(i).empty()) in.get_all(rows.scales(i));
    rows.view(i, 1).decode_difference(0, row);
    require(first_not_finite(row) == row.size(), "{}: row {} holds a number that is not finite",
            in.what(), i);
  }
}

}  // namespace ballast
