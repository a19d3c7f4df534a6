#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

TEST(Fixed, Contract) {
  check_contract({.method = "fixed:budget=64"});
  check_contract({.method = "fixed:budget=64,tail=3,heavy=0.5"});
}

TEST(Fixed, KeepsTheTailsOfBlocksAndDoubles) {
  for (std::size_t capacity : {3u, 16u, 40u}) {
    for (std::size_t tail : {1u, 4u, 8u}) {
      for (std::size_t tokens : {0u, 130u}) {
        const std::string method = "fixed:budget=64,tail=" + std::to_string(tail);
        auto summary = make_summary(setup_of(method, capacity, 4, Protocol::stream, tokens));
        const HeadStream stream = random_stream(500, 4, 1);
        const std::size_t c = std::min(tail, capacity);
        auto pattern = [&](std::size_t length, std::size_t n) {
          std::vector<Position> out;
          for (std::size_t p = 0; p < n; ++p) {
            if (p % length >= length - c) out.push_back(static_cast<Position>(p));
          }
          return out;
        };
        std::size_t length = c;
        while (pattern(length, tokens).size() > capacity) ++length;
        for (std::size_t n = 1; n <= 500; ++n) {
          summary->absorb(stream.block(n - 1, 1));
          std::vector<Position> expected = pattern(1, 0);
          if (n <= capacity) {
            for (std::size_t p = 0; p < n; ++p) expected.push_back(static_cast<Position>(p));
          } else {
            while (pattern(length, n).size() > capacity) length *= 2;
            expected = pattern(length, n);
          }
          ASSERT_EQ(kept_positions(*summary), expected)
              << "capacity " << capacity << " tail " << tail << " n " << n;
        }
      }
    }
  }
}

TEST(Fixed, WatchesOnlyForHeavyHitters) {
  EXPECT_FALSE(Policy::parse("fixed:budget=9").needs().all_queries());
  EXPECT_TRUE(Policy::parse("fixed:budget=9,heavy=0.5").needs().attention_sums);
}

}  // namespace
}  // namespace ballast::test
