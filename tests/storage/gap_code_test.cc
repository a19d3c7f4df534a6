#include "storage/gap_code.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace ballast::test {
namespace {

std::vector<Position> there_and_back(const std::vector<Position>& positions) {
  // What lies behind the code is not written.
  std::vector<std::uint8_t> code(gap_bytes(positions) + 1, 0xcc);
  encode_gaps(positions, code.data());
  EXPECT_EQ(code.back(), 0xcc);
  std::vector<Position> out(positions.size());
  decode_gaps(code.data(), out);
  return out;
}

TEST(GapCode, GivesThePositionsBack) {
  std::mt19937 random(3);
  for (int step : {1, 2, 100, 1'000, 100'000}) {
    std::vector<Position> positions;
    Position at = -1;
    for (int i = 0; i < 500; ++i) {
      at += 1 + static_cast<Position>(random() % static_cast<unsigned>(step));
      positions.push_back(at);
    }
    EXPECT_EQ(there_and_back(positions), positions);
    EXPECT_LE(gap_bytes(positions),
              positions.size() + more_gap_bytes(static_cast<std::size_t>(at) + 1));
  }
  EXPECT_EQ(there_and_back({}), std::vector<Position>{});
}

// A byte for each 7 bits of the gap before an entry.
TEST(GapCode, TakesAByteUpTo127Skipped) {
  constexpr Position kLast = std::numeric_limits<Position>::max();
  struct Case {
    std::vector<Position> positions;
    std::size_t bytes;
  };
  for (const Case& c : {Case{{0}, 1}, Case{{127}, 1}, Case{{128}, 2}, Case{{16'383}, 2},
                        Case{{16'384}, 3}, Case{{5, 6, 7, 135, 264}, 6}, Case{{kLast}, 5}}) {
    EXPECT_EQ(gap_bytes(c.positions), c.bytes);
    EXPECT_EQ(there_and_back(c.positions), c.positions);
  }
}

// The gaps that cost most are those of 128 and of 128 * 129.
TEST(GapCode, NeverTakesMoreThanItsBound) {
  for (Position gap : {127, 128, 129, 16'383, 16'384, 16'512}) {
    for (std::size_t count : {1, 2, 50}) {
      std::vector<Position> positions;
      for (std::size_t i = 1; i <= count; ++i) {
        positions.push_back(static_cast<Position>(i) * (gap + 1) - 1);
      }
      const std::size_t tokens = static_cast<std::size_t>(positions.back()) + 1;
      EXPECT_LE(gap_bytes(positions), count + more_gap_bytes(tokens)) << gap << " x " << count;
    }
  }
}

}  // namespace
}  // namespace ballast::test
