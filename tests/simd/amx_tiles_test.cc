#include "simd/amx_tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ballast/error.h"
#include "simd/cpu.h"
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
    const bool amx = has_amx_int8();
    use_target("--target", "avx512");
    EXPECT_TRUE(has_avx512_vnni());
    EXPECT_FALSE(has_amx_int8());
    if (amx) {
      use_target("--target", "amx");
      EXPECT_TRUE(has_amx_int8());
    } else {
      EXPECT_THROW(use_target("--target", "amx"), Error);
    }
    force_amx({});
  }
  if (has_avx2()) {
    const bool vnni = has_avx512_vnni(), amx = has_amx_int8();
    use_target("--target", "avx2");
    EXPECT_FALSE(has_avx512_vnni());
    use_target("--target", "native");
    EXPECT_EQ(has_avx512_vnni(), vnni);
    if (vnni) use_target("--target", "avx512");
    use_target("--target", "native");
    EXPECT_EQ(has_amx_int8(), amx);
  }
  try {
    use_target("--target", "mmx");
    FAIL() << "mmx is unknown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--target mmx: unknown; known: native, amx, avx512, avx2");
  }
}

#if defined(__x86_64__) && defined(__linux__)
class Bf16Tiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx512_vnni() || !has_avx512_bf16()) GTEST_SKIP() << "needs AVX512_BF16 beside tiles";
  }
  void TearDown() override {
    test::bf16_faults = {};
    force_amx({});
  }
};

TEST_F(Bf16Tiles, AreUsedWhereTheyAddUpAsVectorsDo) {
  const test::TrappedTiles tiles;
  EXPECT_EQ(amx_bf16_refusal(), "") << "the first sum that differs";
  EXPECT_TRUE(has_amx_bf16() || tiles.real());
  if (!has_amx_bf16()) GTEST_SKIP() << "this processor has tiles, but none of bfloat16";
  force_amx(false);
  EXPECT_FALSE(has_amx_bf16());
  EXPECT_EQ(amx_bf16_refusal(), "") << "nothing to refuse";
}

TEST_F(Bf16Tiles, AreRefusedWhereAnySumDiffers) {
  const test::TrappedTiles tiles;
  if (tiles.real()) GTEST_SKIP() << "the processor's own tiles have no switch";
  using test::Bf16Faults;
  for (const auto& [name, faults] : {std::pair{"another order", Bf16Faults{.one_by_one = true}},
                                     {"first operand", Bf16Faults{.keeps_first = true}},
                                     {"second operand", Bf16Faults{.keeps_second = true}},
                                     {"products", Bf16Faults{.keeps_products = true}},
                                     {"sums", Bf16Faults{.keeps_sums = true}},
                                     {"never flushes", Bf16Faults{.keeps_first = true,
                                                       .keeps_second = true,
                                                       .keeps_products = true,
                                                       .keeps_sums = true}}}) {
    test::bf16_faults = faults;
    force_amx(true);
    EXPECT_FALSE(has_amx_bf16()) << name;
    EXPECT_TRUE(has_amx_int8()) << name;
    EXPECT_THAT(amx_bf16_refusal(), testing::ContainsRegex("row [0-9]+, column [0-9]+: vectors"))
        << name;
  }
}

// The first to ask may be a thread that rounds in its own way.
TEST_F(Bf16Tiles, AreTriedInTheirOwnRounding) {
  const test::TrappedTiles tiles;
  if (!has_amx_bf16()) GTEST_SKIP() << "this processor has no tiles of bfloat16";
  for (const int direction : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(direction);
    const std::string refusal = amx_bf16_refusal();
    EXPECT_EQ(std::fegetround(), direction);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(refusal, "") << direction;
  }
}

/// Two products of random bytes of each kind, added to random sums. 13 rows of 52 bytes.
template <typename Tiles>
std::vector<std::byte> products_of_each_kind(std::uint32_t seed) {
  constexpr std::size_t kTile = 16 * 64;
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(6 * kTile);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() & 0xFF);
  // Of bfloat16 no exponent that overflows, so that no NaN has a sign or a payload.
  for (std::size_t i = 2 * kTile + 1; i < bytes.size(); i += 2) bytes[i] &= std::byte{0xBF};
  TileConfig config;
  for (int tile = 0; tile < 5; ++tile) {
    config.row_bytes[tile] = static_cast<std::uint16_t>(tile == 3 ? 52 : 64);
    config.rows[tile] = 13;
  }
  const TileScope<Tiles> scope(config);
  std::byte* at = bytes.data();
  Tiles::template load<0>(at, 64);
  Tiles::template load<1>(at + kTile, 64);
  Tiles::template load<2>(at + 2 * kTile, 64);
  for (int i = 0; i < 2; ++i) {
    Tiles::template load<3>(at + 3 * kTile + 52 * i, 64);
    Tiles::template load<4>(at + 4 * kTile + 64 * i, 64);
    Tiles::template dot_add<0, 3, 4>();
    Tiles::template dot_add_unsigned<1, 3, 4>();
    Tiles::template dot_add_bf16<2, 3, 4>();
  }
  Tiles::template store<0>(at, 64);
  Tiles::template store<1>(at + kTile, 64);
  Tiles::template store<2>(at + 2 * kTile, 64);
  return bytes;
}

// All tests on the emulation rely on it.
TEST(AmxTiles, TheProcessorAgreesWithTheEmulation) {
  if (!has_avx512_vnni()) GTEST_SKIP() << "needs AVX-512 VNNI beside the emulated tiles";
  const test::TrappedTiles tiles;
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(products_of_each_kind<AmxTiles>(seed),
              products_of_each_kind<test::EmulatedTiles>(seed));
  }
  if (!tiles.real()) GTEST_SKIP() << "this processor has no tiles: only decoding was tested";
}
#endif

}  // namespace
}  // namespace ballast
