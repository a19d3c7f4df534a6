// Memory in large pages. With pages of 4 KiB, address translation takes up to a fifth of the time
// of reading a long cache, and more in virtual machines.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace ballast {

/// In bytes: that of x86-64 and of most other processors with small pages of 4 KiB.
inline constexpr std::size_t kLargePage = std::size_t{2} << 20;

/// Arrays that share large pages: a small array alone fills none, a large one wastes half a page on
/// average. The system provides a page when an array is first written there, and gets it back when
/// no array lies in it any more. Thread-safe.
class LargePages {
 public:
  LargePages() = default;
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;
  ~LargePages();

  /// The one that all caches use.
  static LargePages& shared();

  /// Allocates `bytes` > 0, aligned to 4 KiB and not zeroed. Throws std::bad_alloc.
  void* allocate(std::size_t bytes);
  /// Frees what allocate() returned.
  void free(void* array) noexcept;
  /// Bytes of all arrays, gaps between them included.
  std::size_t bytes();

 private:
  struct Range {
    std::size_t bytes = 0;
    bool used = false;
  };
  using Ranges = std::map<std::byte*, Range>;

  Ranges::iterator find(std::size_t bytes);
  void map_more(std::size_t bytes);

  std::mutex mutex_;
  Ranges ranges_;  // all mapped ranges, by address; adjacent unused ones of a region are merged
  std::map<std::byte*, std::size_t> regions_;  // what the system provided, unmapped at the end
};

}  // namespace ballast
