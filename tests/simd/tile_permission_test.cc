#include "simd/tile_permission.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "simd/cpu.h"

namespace ballast {
namespace {

/// A processor and a system with all that tiles need; tests take something away.
struct Answers {
  CpuidLeaf features{.c = 1u << 27};
  CpuidLeaf extended{.d = 1u << 22 | 1u << 24 | 1u << 25};
  CpuidLeaf palette{.a = 1024u << 16 | 8192, .b = 8u << 16 | 64, .c = 16};
  std::uint32_t last_leaf = 0x1E;
  std::uint64_t saved_states = 1u << 17 | 1u << 18 | 7;
  int error = 0;

  /// What was asked beyond CPUID.
  std::vector<std::string> asked;

  TileQueries queries() {
    return {[this](std::uint32_t leaf, std::uint32_t subleaf) -> std::optional<CpuidLeaf> {
              if (leaf > last_leaf) return {};
              if (leaf == 1) return features;
              if (leaf == 7 && subleaf == 0) return extended;
              if (leaf == 0x1D && subleaf == 1) return palette;
              return CpuidLeaf{};
            },
            [this] {
              asked.emplace_back("states");
              return saved_states;
            },
            [this](long code, long argument) {
              EXPECT_EQ(code, 0x1023);
              EXPECT_EQ(argument, 18);
              asked.emplace_back("permission");
              return error;
            }};
  }
};

using Asked = std::vector<std::string>;

TEST(TilePermission, IsAskedOnceEverythingIsThere) {
  Answers answers;
  EXPECT_TRUE(tiles_are_granted(answers.queries()));
  EXPECT_EQ(answers.asked, (Asked{"states", "permission"}));
  EXPECT_TRUE(has_bf16_tiles(answers.queries()));
}

// An instruction that the processor does not have would end the program.
TEST(TilePermission, IsRefusedWithoutAnyBitOfTheProcessor) {
  const auto expect_refused = [](const char* name, const auto& change) {
    Answers answers;
    change(answers);
    EXPECT_FALSE(tiles_are_granted(answers.queries())) << name;
    EXPECT_EQ(answers.asked, Asked{}) << name;
  };
  expect_refused("OSXSAVE", [](Answers& x) { x.features.c = ~(1u << 27); });
  expect_refused("tiles", [](Answers& x) { x.extended.d = ~(1u << 24); });
  expect_refused("int8", [](Answers& x) { x.extended.d = ~(1u << 25); });
  expect_refused("leaf 1", [](Answers& x) { x.last_leaf = 0; });
  expect_refused("leaf 7", [](Answers& x) { x.last_leaf = 6; });
  expect_refused("leaf 1D", [](Answers& x) { x.last_leaf = 0x1C; });
  expect_refused("bytes of a tile", [](Answers& x) { x.palette.a = 1023u << 16 | 8192; });
  expect_refused("bytes of a row", [](Answers& x) { x.palette.b = 8u << 16 | 63; });
  expect_refused("tiles of the palette", [](Answers& x) { x.palette.b = 7u << 16 | 64; });
  expect_refused("rows", [](Answers& x) { x.palette.c = 15; });
}

TEST(TilePermission, IsRefusedWhereTheSystemDoesNotSaveTiles) {
  for (const unsigned missing : {17, 18}) {
    Answers answers;
    answers.saved_states = ~(std::uint64_t{1} << missing);
    EXPECT_FALSE(tiles_are_granted(answers.queries())) << missing;
    EXPECT_EQ(answers.asked, Asked{"states"}) << missing;
  }
}

// EINVAL: a kernel before 5.16. ENOSPC: an alternate signal stack cannot hold the tiles.
TEST(TilePermission, IsWhatTheSystemSays) {
  for (const int error : {EINVAL, ENOSPC, EOPNOTSUPP, EPERM}) {
    Answers answers;
    answers.error = error;
    EXPECT_FALSE(tiles_are_granted(answers.queries())) << error;
  }
}

TEST(TilePermission, Bf16HasABitOfItsOwn) {
  Answers answers;
  answers.extended.d = ~(1u << 22);
  EXPECT_FALSE(has_bf16_tiles(answers.queries()));
  EXPECT_TRUE(tiles_are_granted(answers.queries()));
}

TEST(TilePermission, OfThisProcessorIsWhatKernelsAreToldOf) {
  if (!has_avx512_vnni()) GTEST_SKIP() << "needs AVX-512 VNNI";
  EXPECT_EQ(tiles_are_granted(own_tile_queries()), has_amx_int8());
}

}  // namespace
}  // namespace ballast
