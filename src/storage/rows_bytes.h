// Stored rows in saved files.
#pragma once

#include "ballast/serialize.h"
#include "ballast/storage.h"

namespace ballast {

/// Writes payload and scales of every row, without padding between rows.
void save_rows(ByteWriter& out, const RowsView& rows);
/// Reads `count` rows into `rows` from row `begin` on. Throws Error when they do not fit or a
/// number is not finite.
void load_rows(ByteReader& in, Rows& rows, std::size_t begin, std::size_t count);

}  // namespace ballast
