#include "base/os/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <sys/resource.h>
#elif defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "ballast/matrix.h"
#include "base/own_pages.h"

namespace ballast {
namespace {

constexpr std::size_t kLeastOwnPages = std::size_t{32} << 10;

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
  void advise(int what) const {
    if (bytes > 0) ::madvise(const_cast<std::byte*>(begin), bytes, what);
  }

  const std::byte* begin;
  std::size_t bytes;
};

}  // namespace

std::byte* map_memory(std::size_t bytes, bool surely) noexcept {
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | (surely ? 0 : MAP_NORESERVE);
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

const std::byte* map_file(int file, std::size_t bytes) noexcept {
  const void* p = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  return p == MAP_FAILED ? nullptr : static_cast<const std::byte*>(p);
}

void unmap(const std::byte* begin, std::size_t bytes) noexcept {
  ::munmap(const_cast<std::byte*>(begin), bytes);
}

void* allocate_own_pages(std::size_t bytes) {
  if (bytes < kLeastOwnPages) return allocate_aligned<std::byte>(bytes).release();
  void* memory = map_memory(bytes, true);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void free_own_pages(void* memory, std::size_t bytes) noexcept {
  if (bytes < kLeastOwnPages) {
    std::free(memory);
  } else {
    unmap(static_cast<std::byte*>(memory), bytes);
  }
}

void prefer_large_pages([[maybe_unused]] const std::byte* begin,
                        [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)  // macOS chooses itself
  ::madvise(const_cast<std::byte*>(begin), bytes, MADV_HUGEPAGE);
#endif
}

void give_back(std::byte* begin, std::size_t bytes) noexcept {
#if defined(MADV_FREE_REUSABLE)  // macOS's MADV_DONTNEED keeps the memory
  if (::madvise(begin, bytes, MADV_FREE_REUSABLE) == 0) return;
#endif
  ::madvise(begin, bytes, MADV_DONTNEED);
}

void read_pages_ahead(std::span<const std::byte> part) noexcept {
  // Linux reads no more for a call than a device takes at once, which is 512 KiB and more.
  constexpr std::size_t kAtOnce = 512 << 10;
  for (std::size_t at = 0; at < part.size(); at += kAtOnce) {
    Pages(part.subspan(at, std::min(kAtOnce, part.size() - at)), false).advise(MADV_WILLNEED);
  }
}

void read_pages(std::span<const std::byte> part) noexcept {
  const Pages pages(part, false);
#if defined(MADV_POPULATE_READ)
  if (::madvise(const_cast<std::byte*>(pages.begin), pages.bytes, MADV_POPULATE_READ) == 0) return;
#endif
  pages.advise(MADV_WILLNEED);
}

void drop_file_pages(std::span<const std::byte> part, [[maybe_unused]] int file,
                     [[maybe_unused]] std::uint64_t offset) noexcept {
  const Pages pages(part, true);
  pages.advise(MADV_DONTNEED);
#if defined(POSIX_FADV_DONTNEED)
  if (pages.bytes == 0) return;
  ::posix_fadvise(file, static_cast<off_t>(offset) + (pages.begin - part.data()),
                  static_cast<off_t>(pages.bytes), POSIX_FADV_DONTNEED);
#endif
}

#if !defined(__APPLE__)
namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

/// The value of `key` in a file of keys and values; `otherwise` if it is missing.
std::size_t read_entry(const std::string& path, std::string_view key, std::size_t otherwise) {
  std::ifstream in(path);
  std::string name, rest;
  for (std::size_t number = 0; in >> name >> number; std::getline(in, rest)) {
    if (name == key) return number;
  }
  return otherwise;
}

std::size_t read_number(const std::string& path, std::size_t otherwise) {
  std::ifstream in(path);
  std::size_t number = 0;
  return in >> number ? number : otherwise;
}

std::size_t machine_memory() {
  const std::size_t kib = read_entry("/proc/meminfo", "MemAvailable:", kUnknown);
  return kib == kUnknown ? kUnknown : kib * 1024;
}

/// What the limits of this process's control group and of its ancestors leave (version 2).
std::size_t group_memory() {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  std::size_t least = kUnknown;
  while (std::getline(in, line)) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3);; group.erase(group.find_last_of('/'))) {
      const std::string folder = "/sys/fs/cgroup" + group + (group == "/" ? "" : "/");
      const std::size_t most = read_number(folder + "memory.max", kUnknown);
      // The system drops pages of files, the model's among them, when memory is needed.
      const std::size_t pages = read_entry(folder + "memory.stat", "file", 0) -
                                read_entry(folder + "memory.stat", "shmem", 0);
      const std::size_t held = read_number(folder + "memory.current", 0);
      const std::size_t used = held - std::min(held, pages);
      if (most != kUnknown) least = std::min(least, most - std::min(most, used));
      if (group.find_last_of('/') == std::string::npos || group.size() < 2) break;
    }
  }
  return least;
}

}  // namespace

std::size_t peak_memory() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << '5'; }

std::size_t resident_memory(std::span<const std::filesystem::path> files) {
  std::vector<std::string> names;
  for (const std::filesystem::path& file : files) {
    std::error_code unknown;
    names.push_back(" " + std::filesystem::canonical(file, unknown).string());
  }
  std::ifstream in("/proc/self/smaps");
  bool ours = true;
  std::size_t bytes = 0;
  for (std::string line; std::getline(in, line);) {
    // A mapping begins with a line that ends with its file; lines on it begin with a capital.
    if (!line.empty() && std::isupper(static_cast<unsigned char>(line[0])) == 0) {
      ours = std::ranges::none_of(names, [&](const auto& name) { return line.ends_with(name); });
    } else if (ours && line.starts_with("Rss:")) {
      bytes += std::stoull(line.substr(4)) * 1024;
    }
  }
  return bytes;
}

std::size_t free_memory() { return std::min(machine_memory(), group_memory()); }

void trim_heap() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

void give_back_arrays() {
#if defined(__GLIBC__)
  // Left alone, glibc raises this bound until the holes that chunks of a stream leave in its heap
  // stay.
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}
#else  // by its documentation; never run

std::size_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss);  // bytes here, KiB on Linux
}

void reset_peak_memory() {}

/// The footprint is without pages of files that the system can read again.
std::size_t resident_memory(std::span<const std::filesystem::path>) {
  task_vm_info_data_t info{};
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  const kern_return_t result =
      ::task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return result == KERN_SUCCESS ? static_cast<std::size_t>(info.phys_footprint) : 0;
}

/// Pages that are free, or that the system drops when others need them.
std::size_t free_memory() {
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (::host_statistics64(::mach_host_self(), HOST_VM_INFO64,
                          reinterpret_cast<host_info64_t>(&pages), &count) != KERN_SUCCESS) {
    return std::numeric_limits<std::size_t>::max();
  }
  return (std::size_t{pages.free_count} + pages.inactive_count + pages.purgeable_count) *
         vm_kernel_page_size;
}

void trim_heap() { ::malloc_zone_pressure_relief(nullptr, 0); }
void give_back_arrays() {}
#endif

}  // namespace ballast
