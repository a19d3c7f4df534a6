#include "simd/amx_tiles.h"

#include <gtest/gtest.h>

#include "ballast/error.h"
#include "simd/cpu.h"
#include "simd/roofline.h"
#include "simd/trapped_tiles.h"

namespace ballast {
namespace {

TEST(AmxTiles, ForcingAmxNeedsAvx512) {
  const bool own = has_amx_int8();
  EXPECT_LE(own, has_avx512_vnni());
  force_amx(true);
  EXPECT_EQ(has_amx_int8(), has_avx512_vnni());
  force_amx(false);
  EXPECT_FALSE(has_amx_int8());
  force_amx({});
  EXPECT_EQ(has_amx_int8(), own);
}

TEST(AmxTiles, TargetsAreWhatKernelsAreToldOf) {
  if (has_avx512_vnni()) {
    use_target("--target", "avx512");
    EXPECT_TRUE(has_avx512_vnni());
    EXPECT_FALSE(has_amx_int8());
    EXPECT_THROW(use_target("--target", "amx"), Error);
    force_amx({});
  }
  try {
    use_target("--target", "mmx");
    FAIL() << "mmx is unknown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--target mmx: unknown; known: native, amx, avx512, avx2");
  }
}

#if defined(__x86_64__) && defined(__linux__)
TEST(AmxTiles, TheRooflineCountsItsProducts) {
  if (!has_avx512_vnni()) GTEST_SKIP() << "needs AVX-512 VNNI beside the emulated tiles";
  const test::TrappedTiles tiles;
  EXPECT_EQ(kernels::int8_tile_multiply_adds(3), 3.0 * 4 * 16 * 16 * 64);
  if (!tiles.real()) {
    EXPECT_EQ(tiles.products(), 3u * 4);
    EXPECT_FALSE(test::tile_file().configured()) << "released at the end";
  }
}
#endif

}  // namespace
}  // namespace ballast
