// Whether this processor has what the kernels of attention_avx512.h need.
#include "kernels/attention_avx512.h"

#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include <atomic>

namespace ballast::kernels::avx512 {

#if HWY_ARCH_X86 && defined(__GNUC__)
namespace {
std::atomic<bool> allowed = true;
}

bool multiplies(StorageType type) {
  static const bool able =
      __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vnni") != 0 &&
      __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  const bool floats = type == StorageType::f32 || type == StorageType::f16;
  return !floats && able && allowed.load(std::memory_order_relaxed);
}

void allow_for_test(bool use) { allowed = use; }
#else
bool multiplies(StorageType) { return false; }
void allow_for_test(bool) {}
#endif

}  // namespace ballast::kernels::avx512
