// Reading small JSON files such as a model's config.json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace ballast {

/// Throws Error naming the file, and the place where it stops being JSON. Refuses files over 32 MiB
/// and nesting deeper than 64, so that memory stays in proportion.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace ballast
