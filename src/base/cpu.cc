#include "base/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/cpu.cc"
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
#include "base/fail.h"

namespace ballast {
namespace {
HWY_EXPORT(IsAvx512);
HWY_EXPORT(IsAvx2);
}  // namespace

// Highway remembers its choice. Asking for what is supported would take microseconds each time.

bool has_avx2() {
#if defined(__x86_64__)
  return HWY_DYNAMIC_DISPATCH(IsAvx2)();
#else
  return false;
#endif
}

void forbid_avx512() {
#if HWY_ARCH_X86
  if (has_avx2()) return hwy::SetSupportedTargetsForTest(HWY_AVX2);
#endif
  fail("target avx2: this processor has no AVX2");
}

bool has_avx512_vnni() {
#if defined(__x86_64__)
  static const bool has =
      __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
  return has && HWY_DYNAMIC_DISPATCH(IsAvx512)();
#else
  return false;
#endif
}

bool has_avx512_bf16() {
#if defined(__x86_64__)
  static const bool has =
      __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
  return has && HWY_DYNAMIC_DISPATCH(IsAvx512)();
#else
  return false;
#endif
}

}  // namespace ballast
#endif
