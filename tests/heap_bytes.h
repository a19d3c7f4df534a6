// What the heap holds, for tests that compare it with the bytes that a class reports.
#pragma once

#include <malloc.h>

#include <cstddef>

#include "base/large_pages.h"

namespace ballast::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHeapCanBeAsked = false;  // a sanitizer keeps the heap
#else
inline constexpr bool kHeapCanBeAsked = true;
#endif

/// Bytes in use on the heap and in large pages, whichever thread asked for them.
inline std::size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd + LargePages::shared().bytes();
}

}  // namespace ballast::test
