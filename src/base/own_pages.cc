#include "base/own_pages.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "ballast/matrix.h"

namespace ballast {
namespace {

constexpr std::size_t kLeastInPages = std::size_t{32} << 10;

}  // namespace

void* allocate_own_pages(std::size_t bytes) {
  if (bytes < kLeastInPages) return allocate_aligned<std::byte>(bytes).release();
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void free_own_pages(void* memory, std::size_t bytes) noexcept {
  if (bytes < kLeastInPages) {
    std::free(memory);
  } else {
    ::munmap(memory, bytes);
  }
}

}  // namespace ballast
