#include "simd/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/cpu.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
// The better a target, the smaller its number.
bool IsAvx512() { return HWY_TARGET <= HWY_AVX3; }
bool IsAvx2() { return HWY_TARGET <= HWY_AVX2; }
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <unistd.h>

#include "base/fail.h"

namespace ballast {
namespace {
HWY_EXPORT(IsAvx512);
HWY_EXPORT(IsAvx2);

std::atomic<bool> beyond_highway = true;
std::optional<bool> forced_prefetch_to_l1;

// False where the system does not tell.
bool has_large_l1() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  return ::sysconf(_SC_LEVEL1_DCACHE_SIZE) > (32 << 10);
#else
  return false;
#endif
}
}  // namespace

unsigned detail::look() {
  unsigned found = kKnown;
#if defined(__x86_64__)
  if (HWY_DYNAMIC_DISPATCH(IsAvx2)()) found |= kAvx2;
  if (beyond_highway && HWY_DYNAMIC_DISPATCH(IsAvx512)() &&
      __builtin_cpu_supports("avx512vbmi") != 0) {
    if (__builtin_cpu_supports("avx512vnni") != 0) found |= kVnni;
    if (__builtin_cpu_supports("avx512bf16") != 0) found |= kBf16;
  }
#endif
  if (forced_prefetch_to_l1.value_or(has_large_l1())) found |= kLargeL1;
  features.store(found, std::memory_order_relaxed);
  return found;
}

void use_targets(std::int64_t targets, bool beyond) {
  hwy::SetSupportedTargetsForTest(targets);
  beyond_highway = beyond;
  detail::features = 0;
}

void force_prefetch_to_l1(std::optional<bool> forced) {
  forced_prefetch_to_l1 = forced;
  detail::features = 0;
}

void forbid_avx512() {
#if HWY_ARCH_X86
  if (has_avx2()) return use_targets(HWY_AVX2, false);
#endif
  fail("target avx2: this processor has no AVX2");
}

}  // namespace ballast
#endif
