// What the heap holds, for tests that compare it with the bytes that a class reports.
#pragma once

#include <malloc.h>

#include <cstddef>

#include "base/large_pages.h"
#include "sanitized.h"

namespace ballast::test {

inline constexpr bool kHeapCanBeAsked = !kSanitized;

/// Bytes in use on the heap and in large pages, whichever thread asked for them.
inline std::size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd + LargePages::shared().bytes();
}

}  // namespace ballast::test
