// How much memory is available.
#include "base/os/memory.h"

#include "ballast/engine/model.h"
#include "base/fail.h"

namespace ballast {
namespace {

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

std::size_t available_memory() { return free_memory(); }

void require_memory(const MemoryEstimate& estimate, std::size_t available, std::string_view what) {
  require(
      estimate.total() <= available, ErrorCode::out_of_memory,
      "{} needs {:.2f} GiB of memory ({:.2f} weights, {:.2f} cache, {:.2f} scratch), {:.2f} GiB "
      "are available: choose a smaller budget, --protocol stream, or a smaller --cache-type",
      what, gib(estimate.total()), gib(estimate.weights), gib(estimate.cache),
      gib(estimate.scratch), gib(available));
}

}  // namespace ballast
