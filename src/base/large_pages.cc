#include "base/large_pages.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>

#include "base/os/memory.h"

// AddressSanitizer reports accesses beyond an array and to freed ones, as with malloc. GCC defines
// a macro, Clang answers a question.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BALLAST_POISONS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(BALLAST_POISONS)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes)
#endif

namespace ballast {
namespace {

constexpr std::size_t kSmallPage = 4096;
constexpr std::size_t kFirstRegion = 64 * kLargePage;  // of addresses, not of memory
// The gap between arrays. AddressSanitizer detects an access just beyond one, and arrays of 2^n
// bytes do not all start in the same cache sets.
constexpr std::size_t kGap = 64;

std::size_t up(std::size_t x, std::size_t unit) { return (x + unit - 1) / unit * unit; }

std::byte* up(std::byte* p, std::size_t unit) {
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(p) % unit;
  return beyond == 0 ? p : p + (unit - beyond);
}

std::byte* down(std::byte* p, std::size_t unit) {
  return p - reinterpret_cast<std::uintptr_t>(p) % unit;
}

// Maps `bytes` from the start of a large page, or returns null.
std::byte* map_aligned(std::size_t bytes) {
  const std::size_t mapped = bytes + kLargePage;
  std::byte* begin = map_memory(mapped);
  if (begin == nullptr) return nullptr;
  std::byte* region = up(begin, kLargePage);
  if (region != begin) unmap(begin, static_cast<std::size_t>(region - begin));
  std::byte* end = region + bytes;
  if (end != begin + mapped) unmap(end, static_cast<std::size_t>(begin + mapped - end));
  prefer_large_pages(region, bytes);
  return region;
}

}  // namespace

LargePages& LargePages::shared() {
  static LargePages& pages = *new LargePages;  // arrays may outlive all static objects
  return pages;
}

LargePages::~LargePages() {
  for (auto& [begin, bytes] : regions_) {
    ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
    unmap(begin, bytes);
  }
}

LargePages::Ranges::iterator LargePages::find(std::size_t bytes) {
  return std::find_if(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return !range.second.used && range.second.bytes >= bytes;
  });
}

void LargePages::map_more(std::size_t bytes) {
  // Regions double: only the last page of each may be partly used.
  std::size_t all = 0;
  for (const auto& [begin, size] : regions_) all += size;
  const std::size_t least = up(bytes, kLargePage);
  std::size_t size = std::max({least, kFirstRegion, all});
  std::byte* region = map_aligned(size);
  if (region == nullptr) region = map_aligned(size = least);  // addresses may be limited
  if (region == nullptr) throw std::bad_alloc();
  try {
    regions_.emplace(region, size);
    ranges_.emplace(region, Range{size, false});
  } catch (...) {
    regions_.erase(region);
    unmap(region, size);
    throw;
  }
  ASAN_POISON_MEMORY_REGION(region, size);
}

void* LargePages::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const std::size_t taken = up(bytes + kGap, kSmallPage);
  const std::lock_guard lock(mutex_);
  auto range = find(taken);
  if (range == ranges_.end()) {
    map_more(taken);
    range = find(taken);
  }
  std::byte* begin = range->first;
  if (range->second.bytes > taken) {
    ranges_.emplace(begin + taken, Range{range->second.bytes - taken, false});
    range->second.bytes = taken;
  }
  range->second.used = true;
  ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
  return begin;
}

std::size_t LargePages::bytes() {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [begin, range] : ranges_) sum += range.used ? range.bytes : 0;
  return sum;
}

void LargePages::free(void* array) noexcept {
  const std::lock_guard lock(mutex_);
  auto range = ranges_.find(static_cast<std::byte*>(array));
  std::byte* first = range->first;
  std::byte* last = first + range->second.bytes;
  ASAN_POISON_MEMORY_REGION(first, range->second.bytes);
  range->second.used = false;
  // Ranges of two regions are never merged: a region is unmapped when it is unused.
  const auto joins = [&](Ranges::iterator next) {
    return next != ranges_.end() && !next->second.used && !regions_.contains(next->first);
  };
  if (const auto next = std::next(range); joins(next)) {
    range->second.bytes += next->second.bytes;
    ranges_.erase(next);
  }
  if (range != ranges_.begin() && joins(range) && !std::prev(range)->second.used) {
    const auto before = std::prev(range);
    before->second.bytes += range->second.bytes;
    ranges_.erase(range);
    range = before;
  }
  std::byte* begin = range->first;
  std::byte* end = begin + range->second.bytes;
  if (const auto region = regions_.find(begin);
      region != regions_.end() && region->second == range->second.bytes) {
    ASAN_UNPOISON_MEMORY_REGION(begin, range->second.bytes);
    unmap(begin, region->second);
    regions_.erase(region);
    ranges_.erase(range);
    return;
  }
  // The pages that became unused.
  begin = std::max(up(begin, kLargePage), down(first, kLargePage));
  end = std::min(down(end, kLargePage), up(last, kLargePage));
  if (begin < end) give_back(begin, static_cast<std::size_t>(end - begin));
}

}  // namespace ballast
