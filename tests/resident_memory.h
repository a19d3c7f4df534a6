// The memory of the test's process.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace ballast::test {

/// Resident bytes of this process.
inline std::size_t resident_memory() {
  std::ifstream in("/proc/self/statm");
  std::size_t size = 0, pages = 0;
  in >> size >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace ballast::test
