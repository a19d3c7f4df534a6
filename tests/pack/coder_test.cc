#include "pack/coder.h"

#include <map>

#include "temp_dir.h"

namespace ballast {
namespace {

struct Coded {
  std::vector<std::uint8_t> spreads;
  std::vector<std::int32_t> integers;
  PackTables tables{};
  std::size_t tokens = 0;
  double ideal_bits = 0;  ///< by the frequencies of the magnitudes themselves, of each spread
};

/// Integers of Laplace's distribution, in every spread.
Coded laplace(std::size_t tokens, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  Coded out;
  out.tokens = tokens;
  std::array<std::array<std::uint64_t, PackTable::kClasses>, pack_spread::kCount> counts{};
  for (std::size_t s = pack_spread::kLeast; s < 32; ++s) {
    std::map<std::int32_t, double> seen;
    for (int i = 0; i < 3; ++i) {
      const auto spread = static_cast<std::uint8_t>(s);
      out.spreads.push_back(spread);
      for (std::size_t t = 0; t < tokens; ++t) {
        const double y = -std::log(1 - uniform(random)) * pack_spread::steps(spread) / 1.41421356;
        const auto magnitude = static_cast<std::int32_t>(std::lround(y));
        const std::int32_t q = uniform(random) < 0.5 ? -magnitude : magnitude;
        out.integers.push_back(q);
        ++seen[q];
        ++counts[s][pack_class(spread, static_cast<std::uint32_t>(magnitude)).number];
      }
    }
    for (const auto& [q, n] : seen) out.ideal_bits -= n * std::log2(n / double(3 * tokens));
    out.tables[s] = PackTable::of(static_cast<std::uint8_t>(s), counts[s]);
  }
  return out;
}

std::vector<std::int32_t> decoded(const Coded& coded, std::span<const std::byte> bytes) {
  std::vector<std::int32_t> out(coded.integers.size(), 77);
  PackDecoder(coded.spreads, coded.tables).decode(bytes, coded.tokens, coded.spreads, out);
  return out;
}

TEST(PackCoder, DecodesWhatItCodes) {
  for (std::size_t tokens : {1, 7, 8, 9, 128}) {
    const Coded coded = laplace(tokens, tokens);
    const auto bytes = encode_integers(coded.integers, tokens, coded.spreads, coded.tables);
    EXPECT_EQ(decoded(coded, bytes), coded.integers);
  }
}

TEST(PackCoder, TakesLittleMoreThanTheEntropy) {
  Coded coded = laplace(4096, 3);
  const auto bytes = encode_integers(coded.integers, coded.tokens, coded.spreads, coded.tables);
  EXPECT_LT(8 * static_cast<double>(bytes.size()), 1.01 * coded.ideal_bits);
  EXPECT_GT(8 * static_cast<double>(bytes.size()), 0.99 * coded.ideal_bits);
}

TEST(PackCoder, LargeIntegersAreCodedInEverySpread) {
  Coded coded;
  coded.tokens = 6;
  for (std::size_t s = pack_spread::kLeast; s < pack_spread::kCount; ++s) {
    coded.spreads.push_back(static_cast<std::uint8_t>(s));
    coded.tables[s] = PackTable::of(static_cast<std::uint8_t>(s),
                                    std::array<std::uint64_t, PackTable::kClasses>{});
    for (std::int32_t q : {0, 1, -1, 12345, kMostPacked, -kMostPacked}) {
      coded.integers.push_back(q);
    }
  }
  const auto bytes = encode_integers(coded.integers, 6, coded.spreads, coded.tables);
  EXPECT_EQ(decoded(coded, bytes), coded.integers);
}

TEST(PackCoder, CoefficientsWithoutSpreadAreZero) {
  Coded coded = laplace(5, 1);
  coded.spreads[4] = pack_spread::kNone;
  const auto bytes = encode_integers(coded.integers, 5, coded.spreads, coded.tables);
  std::fill_n(coded.integers.begin() + 4 * 5, 5, 0);
  EXPECT_EQ(decoded(coded, bytes), coded.integers);
}

TEST(PackCoder, DamagedBlocksAreRefusedOrDecodedToSomething) {
  const Coded coded = laplace(30, 4);
  const auto bytes = encode_integers(coded.integers, 30, coded.spreads, coded.tables);
  EXPECT_NE(error_of([&] { decoded(coded, std::span(bytes).first(bytes.size() - 2)); }), "");
  EXPECT_NE(error_of([&] { decoded(coded, std::span(bytes).first(20)); }), "");
  EXPECT_NE(error_of([&] { decoded(coded, {}); }), "");
  std::mt19937_64 random(5);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    auto other = bytes;
    other[random() % other.size()] ^= static_cast<std::byte>(1 << random() % 8);
    refused += error_of([&] { decoded(coded, other); }).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);  // a changed symbol changes the states at the end, a low bit nothing
}

TEST(PackCoder, FrequenciesAddUpWhateverWasSeen) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 3000; ++i) {
    std::array<std::uint64_t, PackTable::kClasses> counts{};
    for (auto& n : counts) n = random() % 3 == 0 ? random() >> (random() % 60 + 4) : 0;
    const auto spread = static_cast<std::uint8_t>(2 + random() % 62);
    const PackTable table = PackTable::of(spread, counts);
    MemoryWriter out;
    table.save(out);
    ByteReader in(out.bytes);
    EXPECT_EQ(PackTable::load(in).frequency, table.frequency);  // which checks the sum
  }
}

}  // namespace
}  // namespace ballast
