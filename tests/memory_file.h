// A file that lives in memory only: for tests that read thousands of damaged files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

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

}  // namespace ballast
