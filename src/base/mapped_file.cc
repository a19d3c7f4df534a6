#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/fail.h"
#include "base/large_pages.h"
#include "base/read_file.h"

namespace ballast {
namespace {

/// A mapped file, for a handler of signals: it may neither lock nor allocate.
struct Mapping {
  Mapping(std::size_t size, std::string path) : size(size), path(std::move(path)) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (file >= 0) ::close(file);
  }

  const std::byte* begin = nullptr;
  std::size_t size;
  std::string path;
  int file = -1;  ///< open, so that pages can be given back
};
std::array<std::atomic<const Mapping*>, 256> mappings;
std::mutex mappings_change;

void remember(std::unique_ptr<Mapping> mapping) {
  const std::lock_guard lock(mappings_change);
  for (auto& slot : mappings) {
    if (slot.load() != nullptr) continue;
    slot.store(mapping.release());
    return;
  }
}

void forget(const std::byte* begin) {
  const std::lock_guard lock(mappings_change);
  for (auto& slot : mappings) {
    const Mapping* mapping = slot.load();
    if (mapping == nullptr || mapping->begin != begin) continue;
    slot.store(nullptr);
    delete mapping;
    return;
  }
}

/// The mapping that an address lies in, or null.
const Mapping* mapping_of(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& slot : mappings) {
    const Mapping* mapping = slot.load();
    if (mapping == nullptr) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping->begin);
    if (at >= begin && at - begin < mapping->size) return mapping;
  }
  return nullptr;
}

/// Pages: those that a part touches, or those that lie wholly in it.
struct Pages {
  Pages(std::span<const std::byte> part, bool whole) {
    static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(part.data());
    const std::uintptr_t last = first + part.size();
    const std::uintptr_t from = whole ? (first + page - 1) / page * page : first / page * page;
    const std::uintptr_t to = whole ? last / page * page : (last + page - 1) / page * page;
    begin = part.data() + static_cast<std::ptrdiff_t>(from - first);
    bytes = to > from ? to - from : 0;
  }
  void* address() const { return const_cast<std::byte*>(begin); }

  const std::byte* begin;
  std::size_t bytes;
};

bool is_mapped(std::span<const std::byte> part) {
  const std::lock_guard lock(mappings_change);
  return mapping_of(part.data()) != nullptr;
}

}  // namespace

const char* mapped_path(const void* address) {
  const Mapping* mapping = mapping_of(address);
  return mapping == nullptr ? nullptr : mapping->path.c_str();
}

void read_ahead(std::span<const std::byte> part) {
  if (!is_mapped(part)) return;
  // Linux reads no more for a call than a device takes at once, which is 512 KiB and more.
  constexpr std::size_t kAtOnce = 512 << 10;
  for (std::size_t at = 0; at < part.size(); at += kAtOnce) {
    const Pages pages(part.subspan(at, std::min(kAtOnce, part.size() - at)), false);
    ::madvise(pages.address(), pages.bytes, MADV_WILLNEED);
  }
}

void read_now(std::span<const std::byte> part) {
  if (!is_mapped(part)) return;
  const Pages pages(part, false);
#ifdef MADV_POPULATE_READ
  if (::madvise(pages.address(), pages.bytes, MADV_POPULATE_READ) == 0) return;
#endif
  ::madvise(pages.address(), pages.bytes, MADV_WILLNEED);  // the first use of each page waits
}

void drop_pages(std::span<const std::byte> part) {
  const std::lock_guard lock(mappings_change);
  const Mapping* mapping = mapping_of(part.data());
  const Pages pages(part, true);
  if (mapping == nullptr || pages.bytes == 0) return;
  ::madvise(pages.address(), pages.bytes, MADV_DONTNEED);
  ::posix_fadvise(mapping->file, pages.begin - mapping->begin, static_cast<off_t>(pages.bytes),
                  POSIX_FADV_DONTNEED);
}

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
    auto mapping = std::make_unique<Mapping>(size, path.string());
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (p == MAP_FAILED) {
      problem = std::strerror(errno);
    } else {
      bytes_ = {static_cast<const std::byte*>(p), size};
      prefer_large_pages(p, size);  // a model's weights
      mapping->begin = bytes_.data();
      mapping->file = std::exchange(file, -1);
      remember(std::move(mapping));
    }
  }
  if (file >= 0) ::close(file);
  if (problem != nullptr) fail(ErrorCode::io, "{}: cannot read: {}", path.string(), problem);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget(bytes_.data());
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace ballast
