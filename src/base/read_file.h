// Reading a whole file as text.
#pragma once

#include <filesystem>
#include <string>

namespace ballast {

/// All bytes of a file or a pipe. Throws Error with the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// Throws Error that says why `path` cannot be opened, from an errno, and what to do about it.
[[noreturn]] void fail_to_open(const std::filesystem::path& path, int error);

}  // namespace ballast
