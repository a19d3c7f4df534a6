#include "storage/row_memory.h"

#include <cstdlib>

#include "ballast/matrix.h"
#include "base/large_pages.h"
#include "base/own_pages.h"

namespace ballast {
namespace {

using From = FreeRows::From;

// The TLB covers smaller arrays, or nearly, without huge pages. They would notice the last huge
// page, half empty on average.
constexpr std::size_t kLeastInLargePages = std::size_t{256} << 10;

}  // namespace

RowMemory allocate_rows(std::size_t bytes) {
  if (bytes < kLeastInLargePages) {
    return {allocate_aligned<std::byte>(bytes).release(), FreeRows{From::heap}};
  }
  return {static_cast<std::byte*>(LargePages::shared().allocate(bytes)),
          FreeRows{From::large_pages}};
}

RowMemory allocate_rows_in_own_pages(std::size_t bytes) {
  return {static_cast<std::byte*>(allocate_own_pages(bytes)), FreeRows{From::own_pages, bytes}};
}

void FreeRows::operator()(std::byte* rows) const {
  switch (from) {
    case From::heap:
      return std::free(rows);
    case From::large_pages:
      return LargePages::shared().free(rows);
    case From::own_pages:
      return free_own_pages(rows, bytes);
    case From::elsewhere:
      return;
  }
}

}  // namespace ballast
