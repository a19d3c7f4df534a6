#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

TEST(Strided, Contract) {
  check_contract({.method = "strided:budget=64"});
  check_contract({.method = "strided:budget=64,heavy=0.5"});
}

TEST(Strided, KeepsEveryStridethTokenAndDoubles) {
  for (std::size_t capacity : {1u, 5u, 32u}) {
    for (std::size_t tokens : {0u, 100u}) {
      auto summary =
          make_summary(setup_of("strided:budget=64", capacity, 4, Protocol::stream, tokens));
      const HeadStream stream = random_stream(500, 4, 1);
      // The shortest stride that meets the capacity, doubled until it does.
      std::size_t stride = std::max<std::size_t>(1, (tokens + capacity - 1) / capacity);
      for (std::size_t n = 1; n <= 500; ++n) {
        summary->absorb(stream.block(n - 1, 1));
        std::vector<Position> expected;
        if (n <= capacity) {
          for (std::size_t p = 0; p < n; ++p) expected.push_back(static_cast<Position>(p));
        } else {
          while ((n + stride - 1) / stride > capacity) stride *= 2;
          for (std::size_t p = 0; p < n; p += stride) expected.push_back(static_cast<Position>(p));
        }
        ASSERT_EQ(kept_positions(*summary), expected) << "capacity " << capacity << " n " << n;
      }
    }
  }
}

TEST(Strided, CountsFromTheFirstTokenAfterTheSink) {
  auto setup = setup_of("strided:budget=64", 4, 4, Protocol::prefill, 40);
  setup.sink = 7;
  auto summary = make_summary(setup);
  summary->absorb(random_stream(40, 4, 1, 7).block(0, 40));
  EXPECT_EQ(kept_positions(*summary), (std::vector<Position>{7, 17, 27, 37}));
}

TEST(Strided, HeavyHittersFillTheirHalf) {
  const HeadStream stream = random_stream(100, 4, 1);
  auto summary =
      make_summary(setup_of("strided:budget=64,heavy=0.5", 20, 4, Protocol::prefill, 100));
  summary->absorb(stream.block(0, 100));
  std::vector<Position> expected, rest;
  for (Position p = 0; p < 100; ++p) (p % 10 == 0 ? expected : rest).push_back(p);
  std::ranges::sort(rest, [&](Position a, Position b) {
    return stream.attention_sum[static_cast<std::size_t>(a)] >
           stream.attention_sum[static_cast<std::size_t>(b)];
  });
  expected.insert(expected.end(), rest.begin(), rest.begin() + 10);
  std::ranges::sort(expected);
  EXPECT_EQ(kept_positions(*summary), expected);
}

TEST(Strided, WatchesOnlyForHeavyHitters) {
  EXPECT_FALSE(Policy::parse("strided:budget=9").needs().all_queries());
  EXPECT_TRUE(Policy::parse("strided:budget=9,heavy=0.5").needs().attention_sums);
}

}  // namespace
}  // namespace ballast::test
