// ballast inspect, for models.
#pragma once

#include <string>

#include "cli/command.h"

namespace ballast::cli {

/// Whether the file or folder is a model's.
bool is_model(const std::string& path);
/// Describes it. A GGUF file that holds only a vocabulary is described as far as it goes.
void inspect_model(const std::string& path, JsonOption& json);

}  // namespace ballast::cli
