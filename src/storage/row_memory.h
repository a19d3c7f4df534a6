// Where the bytes of rows are.
#pragma once

#include <cstddef>
#include <memory>

#include "ballast/storage.h"

namespace ballast {

using RowMemory = std::unique_ptr<std::byte[], FreeRows>;

/// Memory aligned to kAlignment: on the heap, from 256 KiB on in pages of 2 MiB that arrays share.
RowMemory allocate_rows(std::size_t bytes);

/// The same in pages of its own (base/own_pages.h), for what is often replaced by something of
/// another size.
RowMemory allocate_rows_in_own_pages(std::size_t bytes);

}  // namespace ballast
