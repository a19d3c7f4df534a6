// The draws against Philox4x32-10 as its paper prints it.
#include "ballast/random.h"

#include <gtest/gtest.h>

#include <random>

namespace ballast {
namespace {

using Block = std::array<std::uint32_t, 4>;

Block philox(Block x, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * x[0], b = std::uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return x;
}

// Saved caches and published figures depend on these bits.
TEST(Random, DrawsAreThoseOfPhilox) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));  // Random123's kat_vectors
  std::mt19937 rng(1);
  for (int i = 0; i < 100; ++i) {
    const RandomKey key = {std::uint64_t{rng()} << 32 | rng(), static_cast<std::uint32_t>(rng()),
                           static_cast<std::uint32_t>(rng())};
    const std::uint64_t position = std::uint64_t{rng()} << 32 | rng();
    const auto stream = static_cast<std::uint32_t>(rng()),
               index = static_cast<std::uint32_t>(rng());
    const Block own =
        philox({key.layer, key.head, 0x62616c6c, 0x61737431},
               {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
    const Block expected = philox({static_cast<std::uint32_t>(position),
                                   static_cast<std::uint32_t>(position >> 32), stream, index},
                                  {own[0], own[1]});
    EXPECT_EQ(random_bits(key, position, stream, index), expected);
    const double unit = random_unit(key, position, stream, index);
    EXPECT_EQ(unit, (expected[0] * 0x1p21 + (expected[1] >> 11)) * 0x1p-53);
  }
}

}  // namespace
}  // namespace ballast
