#include "simd/cpu.h"

#include <gtest/gtest.h>

#include "attention/kernels/avx512.h"
#include "simd/forced_target.h"

namespace ballast {
namespace {

// What has been looked up once must not outlive its switch: tests of other targets would all run
// on the best one.
TEST(Cpu, ForcedTargetsAreWhatKernelsAreToldOf) {
  const bool avx2 = has_avx2(), vnni = has_avx512_vnni(), bf16 = has_avx512_bf16();
  for (std::int64_t target : test::kernel_targets()) {
    const test::ForcedTarget forced(target);
#if HWY_ARCH_X86
    const bool best = target == HWY_AVX3_DL;
    EXPECT_EQ(has_avx2(), avx2 && target <= HWY_AVX2);
#else
    const bool best = false;
#endif
    EXPECT_EQ(has_avx512_vnni(), best && vnni) << target;
    EXPECT_EQ(has_avx512_bf16(), best && bf16) << target;
    EXPECT_EQ(kernels::avx512::multiplies(StorageType::bf16), best && vnni && bf16) << target;
  }
  EXPECT_EQ(has_avx2(), avx2);
  EXPECT_EQ(has_avx512_vnni(), vnni);
  EXPECT_EQ(has_avx512_bf16(), bf16);
}

TEST(Cpu, AForcedCacheIsWhatAttentionIsToldOf) {
  const bool own = prefetches_to_l1();
  for (bool first : {true, false}) {
    const test::ForcedCache forced(first);
    EXPECT_EQ(prefetches_to_l1(), first);
    const test::ForcedTarget plain(test::kernel_targets().back());
    EXPECT_EQ(prefetches_to_l1(), first);
  }
  EXPECT_EQ(prefetches_to_l1(), own);
}

}  // namespace
}  // namespace ballast
