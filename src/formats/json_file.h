// Reads small JSON files such as a model's config.json.
#pragma once

#include <filesystem>

#include "formats/json.h"

namespace ballast {

/// Throws Error that names the file and the place of a syntax error. Rejects files over 32 MiB and
/// nesting deeper than 64, which bounds memory.
SortedJson read_json(const std::filesystem::path& path);

}  // namespace ballast
