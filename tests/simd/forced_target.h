// Makes the kernels run as on an older processor.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

#include "simd/cpu.h"

namespace ballast::test {

/// The Highway targets that the library is built for and this processor has, the plain one last.
inline std::vector<std::int64_t> kernel_targets() {
  std::vector<std::int64_t> targets;
#if HWY_ARCH_X86
  // AVX3_DL stands for AVX3 with the instructions that has_avx512_*() tell of.
  for (std::int64_t target : {HWY_AVX3_DL, HWY_AVX3, HWY_AVX2}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
#endif
  targets.push_back(HWY_STATIC_TARGET);
  return targets;
}

/// Forces one target for as long as it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) {
#if HWY_ARCH_X86
    const bool beyond = target == HWY_AVX3_DL;
    use_targets(beyond ? HWY_AVX3 : target, beyond);
#else
    use_targets(target, false);
#endif
  }
  ~ForcedTarget() { use_targets(0, true); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

/// Makes attention ask rows into the first-level cache, or the second, for as long as it lives.
class ForcedCache {
 public:
  explicit ForcedCache(bool first) { force_prefetch_to_l1(first); }
  ~ForcedCache() { force_prefetch_to_l1({}); }
  ForcedCache(const ForcedCache&) = delete;
  ForcedCache& operator=(const ForcedCache&) = delete;
};

}  // namespace ballast::test
