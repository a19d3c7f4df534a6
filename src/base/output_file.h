// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

namespace ballast {

/// Writes `path.NUMBER.partial`, a name of its own, and renames it to `path` on commit(): `path` is
/// the old file or a whole new one, whoever else writes it, with the old one's mode and owner. When
/// a signal ends the program, remove_partial_files() removes what is not committed. A path that is
/// not a regular file (/dev/stdout, a pipe) is written to directly. Every member throws Error with
/// the path and the system's reason, a full disk included; the partial file is then gone.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Makes the content durable and renames the file. Nothing can be written afterwards.
  void commit();

  /// Where the file will appear.
  const std::filesystem::path& path() const { return path_; }
  /// Bytes written so far.
  std::uint64_t size() const { return size_; }

 private:
  void discard() noexcept;
  [[noreturn]] void fail_to(const char* action, int error);

  std::filesystem::path path_;
  std::filesystem::path partial_;  ///< empty when `path` is written to directly
  int note_ = -1;                  ///< among the partial files of the process
  std::FILE* file_ = nullptr;
  std::uint64_t size_ = 0;
};

/// Writes the whole of a small file, as OutputFile does.
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace ballast
