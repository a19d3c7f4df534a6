// Stored rows in saved files.
#pragma once

#include "ballast/storage.h"
#include "base/bytes.h"

namespace ballast {

/// Writes payload and scales of every row, without padding between rows.
void save_rows(ByteWriter& out, const RowsView& rows);
/// Reads `count` rows into the first rows of `rows`. Throws Error when a number is not finite.
void load_rows(ByteReader& in, Rows& rows, std::size_t count);

}  // namespace ballast
