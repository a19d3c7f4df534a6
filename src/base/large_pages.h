// Memory in large pages. What is read through once a token spends up to a fifth of that time, in
// virtual machines more, on the translation of addresses where pages have 4 KiB.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace ballast {

/// Bytes; of x86-64, and of most other processors whose small pages have 4 KiB.
inline constexpr std::size_t kLargePage = std::size_t{2} << 20;

/// Asks for large pages under `bytes` from `begin`, which must lie at the beginning of a page. A
/// system that cannot give them changes nothing.
void prefer_large_pages(void* begin, std::size_t bytes);

/// Arrays that share large pages: one by itself fills none when it is smaller, and wastes half of
/// one on average when it is not. Memory is taken from the system in large pages when an array is
/// first written, and given back as soon as no array lies in a page. May be used by many threads.
class LargePages {
 public:
  LargePages() = default;
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;
  ~LargePages();

  /// The one that everyone shares.
  static LargePages& shared();

  /// `bytes` > 0, aligned to 4 KiB; not zero where an array lay before. Throws std::bad_alloc.
  void* allocate(std::size_t bytes);
  /// What allocate() gave.
  void free(void* array) noexcept;
  /// Of all arrays there are, what lies between them included.
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
  Ranges ranges_;  // all that is mapped, by address; no two unused ones of a region side by side
  std::map<std::byte*, std::size_t> regions_;  // what the system gave, to be given back at the end
};

}  // namespace ballast
