// Memory that the system gets back at once: what a stream holds is made anew after every chunk, in
// other sizes, and would leave holes in a heap.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace ballast {

/// Allocates `bytes`, aligned to 64, not zeroed: in pages of its own from 32 KiB on (the last one
/// is half empty on average), on the heap below. Throws std::bad_alloc.
void* allocate_own_pages(std::size_t bytes);
/// Frees what allocate_own_pages(bytes) returned.
void free_own_pages(void* memory, std::size_t bytes) noexcept;

template <typename T>
struct OwnPages {
  using value_type = T;
  OwnPages() = default;
  template <typename U>
  explicit(false) OwnPages(const OwnPages<U>&) {}
  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(allocate_own_pages(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) { free_own_pages(memory, count * sizeof(T)); }
  bool operator==(const OwnPages&) const = default;
};

/// A vector in such memory.
template <typename T>
using VectorInOwnPages = std::vector<T, OwnPages<T>>;

}  // namespace ballast
