#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/large_pages.h"
#include "base/read_file.h"

namespace ballast {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: a named pipe is refused below instead of waiting for its writer.
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_to_open(path, errno);
  struct stat status;
  const char* problem = nullptr;
  if (::fstat(file, &status) != 0) {
    problem = std::strerror(errno);
  } else if (S_ISDIR(status.st_mode)) {
    problem = "it is a folder";
  } else if (!S_ISREG(status.st_mode)) {
    problem = "it is not a regular file";
  } else if (status.st_size > 0) {
    auto size = static_cast<std::size_t>(status.st_size);
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (p == MAP_FAILED) {
      problem = std::strerror(errno);
    } else {
      bytes_ = {static_cast<const std::byte*>(p), size};
      prefer_large_pages(p, size);  // a model's weights
    }
  }
  ::close(file);
  if (problem != nullptr) fail(ErrorCode::io, "{}: cannot read: {}", path.string(), problem);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace ballast
