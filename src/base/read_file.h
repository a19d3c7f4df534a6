// Reading a whole file as text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace ballast {

/// What read_file() reads.
struct Readable {
  std::size_t most = std::size_t{1} << 30;  ///< bytes
  bool pipes = true;  ///< else regular files only, where nobody named the file: a pipe may wait
};

/// All bytes of a file or a pipe, never of a device but a terminal or /dev/null. Throws Error with
/// the path and the reason.
std::string read_file(const std::filesystem::path& path, const Readable& what = {});

/// Throws Error that says why `path` cannot be opened, from an errno, and what to do about it.
[[noreturn]] void fail_to_open(const std::filesystem::path& path, int error);

}  // namespace ballast
