// Files that live in memory only: for tests that read thousands of damaged files.
#pragma once

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace ballast {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : file_(::memfd_create("test", MFD_CLOEXEC)) {
    auto size = static_cast<::ssize_t>(content.size());
    if (file_ < 0 || ::write(file_, content.data(), content.size()) != size) {
      throw std::runtime_error("memfd_create failed");
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

/// A file with a name, of which some readers take the kind, in memory where the system has it.
class TempFile {
 public:
  TempFile(std::string_view name, std::string_view content) {
    std::error_code ignored;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", ignored);
    std::string folder = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    folder += "/ballast-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    folder_ = folder;
    std::ofstream(path_ = folder_ / name, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path folder_, path_;
};

}  // namespace ballast
