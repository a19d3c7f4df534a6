#include "ballast/testing/summary_contract.h"
#include "statistics.h"

namespace ballast::test {
namespace {

TEST(Uniform, Contract) { check_contract({.method = "uniform:budget=64"}); }

TEST(Uniform, EstimatesAreUnbiased) {
  const HeadStream stream = random_stream(200, 8, 11);
  const Matrix query = random_matrix(1, 8, 12, 2.0f);
  const double scale = 1.0 / std::sqrt(8.0);
  const Sums exact = exact_sums(stream, query[0], scale);
  std::vector<std::vector<double>> samples(9);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    auto summary = make_summary(setup_of("uniform:budget=64", 20, 8, Protocol::stream, 0, seed));
    absorb_in_pieces(*summary, stream, 50, seed);
    const Sums sums = sums_of(segments_of(*summary), query[0], scale);
    for (std::size_t c = 0; c < 8; ++c) samples[c].push_back(sums.numerator[c]);
    samples[8].push_back(sums.normaliser);
  }
  for (std::size_t c = 0; c < 8; ++c)
    EXPECT_LT(t_statistic(samples[c], exact.numerator[c]), kTLimit);
  EXPECT_LT(t_statistic(samples[8], exact.normaliser), kTLimit);
}

TEST(Uniform, EveryTokenIsKeptEquallyOften) {
  const std::size_t n = 60, capacity = 7, runs = 4000;
  const HeadStream stream = random_stream(n, 4, 1);
  std::vector<double> counts(n), expected(n, static_cast<double>(runs * capacity) / n);
  for (std::uint64_t seed = 0; seed < runs; ++seed) {
    auto summary =
        make_summary(setup_of("uniform:budget=64", capacity, 4, Protocol::stream, 0, seed));
    summary->absorb(stream.block(0, n));
    for (Position p : kept_positions(*summary)) counts[static_cast<std::size_t>(p)] += 1;
  }
  // Without replacement the counts vary less than chi-square allows: by 1 - capacity / n.
  EXPECT_LT(chi_square(counts, expected) / (1.0 - static_cast<double>(capacity) / n),
            chi_square_limit(n - 1));
}

TEST(Uniform, WeightIsSeenOverKept) {
  auto summary = make_summary(setup_of("uniform:budget=64", 16, 8));
  const HeadStream stream = random_stream(100, 8, 1);
  summary->absorb(stream.block(0, 100));
  ASSERT_EQ(summary->entries(), 16u);
  for (const KeptEntry& e : summary->kept()) {
    EXPECT_FLOAT_EQ(e.weight, 100.0f / 16.0f);
    EXPECT_FLOAT_EQ(e.normaliser_weight, 100.0f / 16.0f);
  }
}

TEST(Uniform, MergedShardsAreTheSampleOfTheWhole) {
  const auto setup = setup_of("uniform:budget=64", 32, 8);
  const HeadStream stream = random_stream(500, 8, 4);
  auto whole = make_summary(setup), left = make_summary(setup), right = make_summary(setup);
  whole->absorb(stream.block(0, 500));
  left->absorb(stream.block(0, 180));
  right->absorb(stream.block(180, 320));
  left->merge(*right);
  expect_same_kept(*whole, *left);
  // The rows went along with the positions.
  std::vector<float> row(8);
  for (const Segment& s : segments_of(*left)) {
    for (std::size_t i = 0; i < s.keys.rows; ++i) {
      const auto at = static_cast<std::size_t>(s.positions[i]);
      s.keys.decode(i, row);
      EXPECT_TRUE(std::ranges::equal(row, stream.keys[at]));
      s.values.decode(i, row);
      EXPECT_TRUE(std::ranges::equal(row, stream.values[at]));
    }
  }
}

/// BalanceKV's Table 5: 2m tokens are halved to lose m.
TEST(Uniform, FromOldestHalvesThe2mOldestAndKeepsTheRest) {
  const HeadStream stream = random_stream(100, 8, 1);
  for (std::size_t capacity : {std::size_t{80}, std::size_t{95}, std::size_t{50}}) {
    const std::size_t lost = 100 - capacity;
    auto summary =
        make_summary(setup_of("uniform:from=oldest,rate=0.5", capacity, 8, Protocol::prefill, 100));
    summary->absorb(stream.block(0, 100));
    const auto kept = sorted_kept(*summary);
    ASSERT_EQ(kept.size(), capacity);
    for (std::size_t i = 0; i < capacity; ++i) {
      const bool old = i < lost;
      EXPECT_EQ(kept[i].weight, old ? 2.0f : 1.0f);
      EXPECT_EQ(kept[i].weight, kept[i].normaliser_weight);
      if (old) {
        EXPECT_LT(kept[i].position, static_cast<Position>(2 * lost));
      } else {
        EXPECT_EQ(kept[i].position, static_cast<Position>(i + lost));
      }
    }
    // What comes later is drawn with the sample, and a saved summary goes on alike.
    auto copy =
        make_summary(setup_of("uniform:from=oldest,rate=0.5", capacity, 8, Protocol::prefill, 100));
    const auto bytes = saved(*summary);
    ByteReader in(bytes);
    copy->load(in);
    const HeadStream later = random_stream(40, 8, 2, 100);
    summary->absorb(later.block(0, 40));
    copy->absorb(later.block(0, 40));
    expect_same_kept(*summary, *copy);
    EXPECT_EQ(summary->entries(), capacity);
    double all = 0;
    for (const KeptEntry& e : summary->kept()) all += e.weight;
    EXPECT_NEAR(all, 140, 1e-3);
  }
}

TEST(Uniform, FromOldestIsTheWholeSampleWhereHalfIsLostAndNeedsAPrompt) {
  const HeadStream stream = random_stream(100, 8, 1);
  auto oldest =
      make_summary(setup_of("uniform:from=oldest,rate=0.5", 20, 8, Protocol::prefill, 100));
  auto all = make_summary(setup_of("uniform:rate=0.5", 20, 8, Protocol::prefill, 100));
  oldest->absorb(stream.block(0, 100));
  all->absorb(stream.block(0, 100));
  expect_same_kept(*oldest, *all);
  EXPECT_THAT(error_of([] { make_summary(setup_of("uniform:from=oldest,budget=64", 20, 8)); }),
              testing::HasSubstr("use the prefill protocol"));
  EXPECT_THAT(error_of([&] { oldest->merge(*oldest); }), testing::HasSubstr("do not unite"));
}

TEST(Uniform, RefusesToUniteWithAnotherSetup) {
  auto a = make_summary(setup_of("uniform:budget=64", 32, 8));
  auto b = make_summary(setup_of("uniform:budget=64", 31, 8));
  auto c = make_summary(setup_of("h2o:budget=64", 32, 8));
  EXPECT_THAT(error_of([&] { a->merge(*b); }), testing::HasSubstr("same setup"));
  EXPECT_THAT(error_of([&] { a->merge(*c); }), testing::HasSubstr("same setup"));
  EXPECT_THAT(error_of([&] { c->merge(*a); }), testing::HasSubstr("do not unite"));
}

}  // namespace
}  // namespace ballast::test
