// ballast inspect, for models.
#pragma once

#include <string>

#include "cli/command.h"

namespace ballast::cli {

/// Whether the file or folder is a model.
bool is_model(const std::string& path);
/// Describes a model, or a GGUF file with only a vocabulary.
void inspect_model(const std::string& path, TableOutput& out);

}  // namespace ballast::cli
