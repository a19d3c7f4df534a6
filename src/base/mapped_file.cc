#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/stat.h>

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
#include "base/os/files.h"
#include "base/os/memory.h"
#include "base/read_file.h"

namespace ballast {
namespace {

/// A mapped file, for a handler of signals: it may neither lock nor allocate.
struct Mapping {
  Mapping(std::size_t size, std::string path) : size(size), path(std::move(path)) {}

  const std::byte* begin = nullptr;
  std::size_t size;
  std::string path;
  Descriptor file;  ///< open, so that pages can be given back
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
  if (is_mapped(part)) read_pages_ahead(part);
}

void read_now(std::span<const std::byte> part) {
  if (is_mapped(part)) read_pages(part);
}

void drop_pages(std::span<const std::byte> part) {
  const std::lock_guard lock(mappings_change);
  const Mapping* mapping = mapping_of(part.data());
  if (mapping == nullptr) return;
  drop_file_pages(part, mapping->file.number(),
                  static_cast<std::uint64_t>(part.data() - mapping->begin));
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: a named pipe is refused below instead of waiting for its writer.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) fail_to_open(path, errno);
  struct stat status;
  const char* problem = nullptr;
  if (::fstat(file.number(), &status) != 0) {
    problem = std::strerror(errno);
  } else if (S_ISDIR(status.st_mode)) {
    problem = "it is a folder";
  } else if (!S_ISREG(status.st_mode)) {
    problem = "it is not a regular file";
  } else if (status.st_size > 0) {
    auto size = static_cast<std::size_t>(status.st_size);
    auto mapping = std::make_unique<Mapping>(size, path.string());
    const std::byte* p = map_file(file.number(), size);
    if (p == nullptr) {
      problem = std::strerror(errno);
    } else {
      bytes_ = {p, size};
      prefer_large_pages(p, size);  // a model's weights
      mapping->begin = bytes_.data();
      mapping->file = std::move(file);
      remember(std::move(mapping));
    }
  }
  if (problem != nullptr) fail(ErrorCode::io, "{}: cannot read: {}", path.string(), problem);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget(bytes_.data());
  unmap(bytes_.data(), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace ballast
