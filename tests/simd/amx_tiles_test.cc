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
TEST(AmxTiles, Bf16IsUsedWhereItAddsUpAsVectorsDo) {
  if (!has_avx512_vnni() || !has_avx512_bf16()) GTEST_SKIP() << "needs AVX512_BF16 beside tiles";
  {
    const test::TrappedTiles tiles;
    EXPECT_TRUE(tiles.real() || has_amx_bf16());
  }
  force_amx(false);
  EXPECT_FALSE(has_amx_bf16());
  force_amx({});
  const test::TrappedTiles tiles;
  if (tiles.real()) return;
  test::bf16_one_by_one = true;
  force_amx(true);
  EXPECT_FALSE(has_amx_bf16());
  EXPECT_TRUE(has_amx_int8());
  test::bf16_one_by_one = false;
}

TEST(AmxTiles, TheRooflineCountsItsProducts) {
  if (!has_avx512_vnni()) GTEST_SKIP() << "needs AVX-512 VNNI beside the emulated tiles";
  const test::TrappedTiles tiles;
  EXPECT_EQ(kernels::int8_tile_multiply_adds(3), 3.0 * 4 * 16 * 16 * 64);
  EXPECT_EQ(kernels::bf16_tile_multiply_adds(2), 2.0 * 4 * 16 * 16 * 32);
  if (!tiles.real()) {
    EXPECT_EQ(tiles.products(), 5u * 4);
    EXPECT_FALSE(test::tile_file().configured()) << "released at the end";
  }
}
#endif

}  // namespace
}  // namespace ballast
