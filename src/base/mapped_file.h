// A whole file mapped into memory, read-only.
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

  /// The content. Its address does not change when the object moves. If another program shortens
  /// the file meanwhile, reading raises SIGBUS, as with every mapped file; mapped_path() then tells
  /// which one it was.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

/// The path of the mapped file in which an address lies; null if there is none. At most 256 mapped
/// files are known at a time. Async-signal-safe while no file is being unmapped.
const char* mapped_path(const void* address);

/// Parts of mapped files, a few MB at least, that are in memory only while they are used. Other
/// memory is left as it is. What is read changes nothing but the time that the next use takes.
/// Asks the system to read a part, and returns before it has.
void read_ahead(std::span<const std::byte> part);
/// Reads a part, or waits until read_ahead() has.
void read_now(std::span<const std::byte> part);
/// Gives back the memory of the pages that lie wholly in a part, unless another program uses them.
void drop_pages(std::span<const std::byte> part);

}  // namespace ballast
