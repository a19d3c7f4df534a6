// Files that a command would read and destroy.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace ballast::cli {

/// Throws Error if the file `output` is there and is one of `inputs`, under any name.
void refuse_overwriting(const std::string& output, std::span<const std::string> inputs);

/// The same for every option of the command that names a file to write, against the values of its
/// other options; of a model, against all of its files.
void refuse_overwriting(const CLI::App& command);

}  // namespace ballast::cli
