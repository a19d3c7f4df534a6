// Makes the kernels run as on an older processor.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ballast::test {

/// The Highway targets that the library is built for and this processor has, the plain one last.
inline std::vector<std::int64_t> kernel_targets() {
  std::vector<std::int64_t> targets;
#if HWY_ARCH_X86
  for (std::int64_t target : {HWY_AVX3, HWY_AVX2}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
#else
  targets.push_back(HWY_STATIC_TARGET);
#endif
  targets.push_back(HWY_STATIC_TARGET);
  return targets;
}

/// Forces one target for as long as it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~ForcedTarget() { hwy::SetSupportedTargetsForTest(0); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

}  // namespace ballast::test
