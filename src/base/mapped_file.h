// A whole file in memory, read-only, as the operating system pages it in.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace ballast {

class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error naming the path if it cannot be read or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// The content; it stays where it is when the object moves. Another program that shortens the
  /// file meanwhile takes pages away from under us (SIGBUS): no reader of mapped files escapes it.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace ballast
