// Whether this processor has what the kernels of attention_avx512.h need.
#include "kernels/attention_avx512.h"

#include <atomic>

#include "base/cpu.h"

namespace ballast::kernels::avx512 {
namespace {
std::atomic<bool> allowed = true;
}

bool multiplies(StorageType type) {
  const bool floats = type == StorageType::f32 || type == StorageType::f16;
  return !floats && allowed.load(std::memory_order_relaxed) && has_avx512_bf16() &&
         has_avx512_vnni();
}

void allow_for_test(bool use) { allowed = use; }

}  // namespace ballast::kernels::avx512
