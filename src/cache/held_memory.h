// Memory that several caches may hold.
#pragma once

#include <cstddef>
#include <vector>

namespace ballast {

class Cache;

struct HeldMemory {
  const void* address = nullptr;
  std::size_t bytes = 0;
};

/// Rows and summaries of a cache: what its copies share with it has the same addresses.
/// Cache::bytes() counts all of it, and little else.
std::vector<HeldMemory> held_memory(const Cache& cache);
/// Bytes of it that two caches have in common.
std::size_t shared_memory(const Cache& a, const Cache& b);

/// Gives back what Cache::reserve() took for tokens that have not come, as far as copies share none
/// of it.
void drop_room(Cache& cache);

}  // namespace ballast
