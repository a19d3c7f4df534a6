// Stored rows in saved files.
#pragma once

#include "ballast/serialize.h"
#include "ballast/storage.h"

namespace ballast {

/// Writes the mean of rotated types (u8 1 and dim f32, or u8 0; nothing for no rows), then payload
/// and scales of every row, without padding between rows.
void save_rows(ByteWriter& out, const RowsView& rows);
/// Reads `count` rows into `rows` from row `begin` on. Throws Error when they do not fit or a
/// number is not finite. Rows that have a mean already must have the mean of the file.
void load_rows(ByteReader& in, Rows& rows, std::size_t begin, std::size_t count);

}  // namespace ballast
