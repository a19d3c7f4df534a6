// The two BalanceKV methods through the interface that caches use.
#include <set>

#include "ballast/serialize.h"
#include "methods/balance_support.h"
#include "methods/outliers.h"

namespace ballast::test {
namespace {

std::vector<KeptEntry> summarise(const SummarySetup& setup, const Tokens& tokens,
                                 std::size_t chunk) {
  auto summary = make_summary(setup);
  for (std::size_t at = 0; at < tokens.size(); at += chunk) {
    summary->absorb(tokens.block(at, std::min(chunk, tokens.size() - at)));
  }
  return summary->kept();
}

bool same(const std::vector<KeptEntry>& a, const std::vector<KeptEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.position == y.position && x.weight == y.weight &&
           x.normaliser_weight == y.normaliser_weight;
  });
}

TEST(BalanceKv, PromptFillsTheRoomExactlyAtAnyRate) {
  for (std::size_t n : {1, 2, 3, 100, 257, 1000, 2049}) {
    const Tokens tokens = random_tokens(n, 16, 8, n);
    for (double rate : {0.95, 0.9, 0.8, 0.5, 1.0 / 3, 0.25, 0.1, 1.0 / 16}) {
      const auto capacity = static_cast<std::size_t>(std::llround(rate * static_cast<double>(n)));
      auto summary = make_summary(setup_of("balancekv", Protocol::prefill, capacity, tokens));
      summary->absorb(tokens.block(0, n));
      EXPECT_EQ(summary->entries(), capacity) << n << " tokens at " << rate;
      if (capacity > 0) {
        EXPECT_NEAR(total_weight(*summary) / static_cast<double>(n), 1, 1e-4);
      }
    }
  }
}

TEST(BalanceKv, LightCompressionKeepsMostExactly) {
  const Tokens tokens = random_tokens(1000, 16, 8, 1);
  auto summary = make_summary(setup_of("balancekv", Protocol::prefill, 950, tokens));
  summary->absorb(tokens.block(0, 1000));
  std::size_t exact = 0;
  for (const KeptEntry& e : summary->kept()) {
    if (e.weight == 1.0f) {
      ++exact;
    } else {
      EXPECT_LT(e.position, 100) << "only the oldest 100 were halved";
    }
  }
  EXPECT_GE(exact, 900u);
}

TEST(BalanceKv, EverythingIsKeptWhileThereIsRoom) {
  for (const char* method : {"balancekv", "balancekv:mode=theory"}) {
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      const Tokens tokens = random_tokens(100, 16, 8, 2);
      auto summary = make_summary(setup_of(method, protocol, 100, tokens));
      summary->absorb(tokens.block(0, 100));
      EXPECT_EQ(summary->entries(), 100u);
      for (const KeptEntry& e : summary->kept()) EXPECT_EQ(e.weight, 1.0f);
    }
  }
}

class BalanceKvMethods : public testing::TestWithParam<const char*> {};

TEST_P(BalanceKvMethods, ChunksDoNotMatter) {
  const Tokens tokens = random_tokens(1500, 16, 8, 3);
  const SummarySetup setup = setup_of(GetParam(), Protocol::stream, 200, tokens, 1500);
  const auto whole = summarise(setup, tokens, 1500);
  EXPECT_TRUE(same(summarise(setup, tokens, 1), whole));
  EXPECT_TRUE(same(summarise(setup, tokens, 128), whole));
  EXPECT_TRUE(same(summarise(setup, tokens, 333), whole));
}

TEST_P(BalanceKvMethods, StreamHoldsItsBudgetAndItsBytes) {
  const Tokens tokens = random_tokens(4000, 16, 8, 4);
  auto summary = make_summary(setup_of(GetParam(), Protocol::stream, 150, tokens));
  const std::size_t bytes = summary->bytes();
  for (std::size_t at = 0; at < 4000; at += 50) {
    summary->absorb(tokens.block(at, 50));
    ASSERT_LE(summary->entries(), 150u);
    ASSERT_EQ(summary->bytes(), bytes);
  }
  EXPECT_GT(summary->entries(), 75u);
  if (std::string(GetParam()).find("theory") == std::string::npos) {
    // The authors' 2^T counts a batch of an odd size wrongly.
    const bool authors = std::string(GetParam()).find("authors") != std::string::npos;
    EXPECT_NEAR(total_weight(*summary, true), 4000, authors ? 40 : 1);
  }
}

TEST_P(BalanceKvMethods, PromptThenStreamGoesOn) {
  const Tokens tokens = random_tokens(1500, 16, 8, 5);
  auto summary = make_summary(setup_of(GetParam(), Protocol::prefill, 200, tokens));
  summary->absorb(tokens.block(0, 1000));
  EXPECT_LE(summary->entries(), 200u);
  for (std::size_t at = 1000; at < 1500; at += 100) {
    summary->absorb(tokens.block(at, 100));
    EXPECT_LE(summary->entries(), 200u);
  }
  std::set<Position> late;
  for (const KeptEntry& e : summary->kept()) {
    if (e.position >= 1000) late.insert(e.position);
  }
  EXPECT_GT(late.size(), 20u);
}

TEST_P(BalanceKvMethods, MergeUnitesShards) {
  const Tokens tokens = random_tokens(1200, 16, 8, 6);
  const SummarySetup setup = setup_of(GetParam(), Protocol::stream, 200, tokens);
  auto a = make_summary(setup), b = make_summary(setup);
  a->absorb(tokens.block(0, 700));
  b->absorb(tokens.block(700, 500));
  a->merge(*b);
  EXPECT_LE(a->entries(), 200u);
  if (std::string(GetParam()).find('=') == std::string::npos) {
    EXPECT_NEAR(total_weight(*a, true), 1200, 0.5);
  }
  const bool both = std::ranges::any_of(a->kept(), [](auto& e) { return e.position < 700; }) &&
                    std::ranges::any_of(a->kept(), [](auto& e) { return e.position >= 700; });
  EXPECT_TRUE(both);
  const SummarySetup larger = setup_of(GetParam(), Protocol::stream, 201, tokens);
  EXPECT_THAT(error_of([&] { a->merge(*make_summary(larger)); }), testing::HasSubstr("same setup"));
}

TEST_P(BalanceKvMethods, StrangeTokensAndTinyRooms) {
  for (std::size_t capacity : {0, 1, 2, 3, 4, 7}) {
    for (float size : {0.0f, 1e4f, 1e12f}) {
      Tokens tokens = random_tokens(120, 16, 8, 7, size);
      for (std::size_t i = 0; i < 120; i += 3) std::ranges::fill(tokens.values[i], 0.0f);
      for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
        auto summary = make_summary(setup_of(GetParam(), protocol, capacity, tokens));
        for (std::size_t at = 0; at < 120; at += 40) {
          summary->absorb(tokens.block(at, 40));
          ASSERT_LE(summary->entries(), capacity);
        }
        for (const KeptEntry& e : summary->kept()) ASSERT_TRUE(std::isfinite(e.weight));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BalanceKvMethods,
                         testing::Values("balancekv", "balancekv:mode=theory",
                                         "balancekv:weights=authors", "balancekv-stream",
                                         "balancekv-stream:mode=theory"));

TEST(BalanceKv, AuthorsWeightsMakeTwoSegments) {
  const Tokens tokens = random_tokens(512, 16, 8, 8);
  auto summary =
      make_summary(setup_of("balancekv:weights=authors", Protocol::prefill, 128, tokens));
  summary->absorb(tokens.block(0, 512));
  std::vector<Segment> segments;
  summary->segments(segments);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].role, Role::numerator);
  EXPECT_EQ(segments[1].role, Role::normaliser);
  for (const KeptEntry& e : summary->kept()) EXPECT_FLOAT_EQ(e.normaliser_weight, 4.0f);
}

// Keys around one direction, but for two tokens that point the other way.
Tokens with_outliers(std::uint64_t seed) {
  Tokens tokens = random_tokens(600, 16, 8, seed, 0.3f);
  for (std::size_t i = 0; i < 600; ++i) tokens.keys[i][0] += i == 100 || i == 430 ? -3.0f : 3.0f;
  return tokens;
}

TEST(BalanceKvOutliers, AreKeptExactlyWithTheirNeighboursInThisAndLaterLayers) {
  const Policy policy = Policy::parse("balancekv:outliers=yes,dilate=4");
  auto shared = policy.info().make_shared(policy);
  ASSERT_NE(shared, nullptr);
  EXPECT_EQ(Policy::parse("balancekv").info().make_shared(Policy::parse("balancekv")), nullptr);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    // Only layer 1 has the outliers in its keys.
    const Tokens tokens = layer == 1 ? with_outliers(9) : random_tokens(600, 16, 8, layer);
    SummarySetup setup =
        setup_of("balancekv:outliers=yes,dilate=4", Protocol::prefill, 150, tokens);
    setup.layers = 3;
    setup.random.layer = layer;
    setup.shared = shared.get();
    auto summary = make_summary(setup);
    summary->absorb(tokens.block(0, 600));
    EXPECT_EQ(summary->entries(), 150u);
    EXPECT_NEAR(total_weight(*summary), 600, 0.1);
    std::set<Position> exact;
    for (const KeptEntry& e : summary->kept()) {
      if (e.weight == 1.0f) exact.insert(e.position);
    }
    bool all = true;
    for (Position centre : {100, 430}) {
      for (Position p = centre - 4; p <= centre + 4; ++p) all = all && exact.contains(p);
    }
    EXPECT_EQ(all, layer >= 1) << layer;
  }
  EXPECT_GT(shared->bytes(), 0u);
}

TEST(BalanceKvOutliers, NeedTheirLayerFirstAndRoom) {
  const Tokens tokens = with_outliers(9);
  OutlierMemory shared;
  SummarySetup setup = setup_of("balancekv:outliers=yes", Protocol::prefill, 20, tokens);
  setup.layers = 4;
  setup.random.layer = 2;
  setup.shared = &shared;
  EXPECT_THAT(error_of([&] { make_summary(setup)->absorb(tokens.block(0, 600)); }),
              testing::HasSubstr("layer 1"));
  // With little room the most anti-correlated are kept, on half of it.
  setup.random.layer = 1;
  auto summary = make_summary(setup);
  summary->absorb(tokens.block(0, 600));
  EXPECT_EQ(summary->entries(), 20u);
  auto exact_with = [&](const std::string& share) {
    OutlierMemory own;
    SummarySetup with = setup_of("balancekv:outliers=yes,dilate=40,outlier-share=" + share,
                                 Protocol::prefill, 100, tokens);
    with.layers = 4;
    with.random.layer = 1;
    with.shared = &own;
    auto made = make_summary(with);
    made->absorb(tokens.block(0, 600));
    EXPECT_EQ(made->entries(), 100u);
    return std::ranges::count_if(made->kept(), [](const KeptEntry& e) {
      return e.weight == 1.0f &&
             std::min(std::abs(e.position - 100), std::abs(e.position - 430)) <= 40;
    });
  };
  EXPECT_EQ(exact_with("0"), 0);
  EXPECT_EQ(exact_with("0.3"), 30);
  EXPECT_EQ(exact_with("1"), 100);
}

TEST(BalanceKvStream, WeightsOfEachBucketAddUpToItsTokens) {
  const std::size_t n = 3000;
  Tokens tokens = random_tokens(n, 16, 8, 10, 0.3f);
  std::map<int, double> in_bucket;
  for (std::size_t i = 0; i < n; ++i) {
    for (float& x : tokens.values[i]) x *= std::exp2(static_cast<float>(i % 5) * 0.8f);
    int bucket = 0;
    std::frexp(std::sqrt(std::inner_product(tokens.values[i].begin(), tokens.values[i].end(),
                                            tokens.values[i].begin(), 0.0)),
               &bucket);
    in_bucket[bucket] += 1;
  }
  ASSERT_GE(in_bucket.size(), 5u);
  auto summary = make_summary(setup_of("balancekv-stream", Protocol::stream, 600, tokens));
  summary->absorb(tokens.block(0, n));
  std::map<int, double> weight;
  double normaliser = 0;
  for (const KeptEntry& e : summary->kept()) {
    EXPECT_TRUE(e.weight == 0 || e.normaliser_weight == 0);
    normaliser += e.normaliser_weight;
    const auto value = tokens.values[static_cast<std::size_t>(e.position)];
    int bucket = 0;
    std::frexp(std::sqrt(std::inner_product(value.begin(), value.end(), value.begin(), 0.0)),
               &bucket);
    weight[bucket] += e.weight;
  }
  EXPECT_NEAR(normaliser, static_cast<double>(n), 0.5);
  for (const auto& [bucket, count] : in_bucket) EXPECT_NEAR(weight[bucket], count, 0.2) << bucket;
}

TEST(BalanceKvStream, DropsBucketsTooSmallToMatter) {
  Tokens tokens = random_tokens(100, 4, 4, 11, 0.01f);
  for (std::size_t i = 0; i < 50; ++i) {
    for (float& x : tokens.values[i]) x *= 1e-9f;
  }
  auto summary = make_summary(setup_of("balancekv-stream", Protocol::stream, 200, tokens));
  summary->absorb(tokens.block(0, 50));
  std::size_t numerator = 0;
  for (const KeptEntry& e : summary->kept()) numerator += e.weight > 0 ? 1 : 0;
  EXPECT_EQ(numerator, 50u);
  summary->absorb(tokens.block(50, 50));
  std::size_t small = 0, large = 0, normaliser = 0;
  for (const KeptEntry& e : summary->kept()) {
    normaliser += e.normaliser_weight > 0 ? 1 : 0;
    if (e.weight > 0) ++(e.position < 50 ? small : large);
  }
  EXPECT_EQ(small, 0u);
  EXPECT_EQ(large, 50u);
  EXPECT_EQ(normaliser, 100u);
}

// Error of attention with a middle of clusters that queries see several of.
double error_of_method(const std::string& method, std::uint64_t seed) {
  const std::size_t n = 2048, dim = 8;
  Tokens tokens = random_tokens(n, dim, dim, seed, 0.5f);
  const Matrix centres = random_matrix(16, dim, seed + 50, 1.5f);
  const Matrix value_centres = random_matrix(16, dim, seed + 51);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < dim; ++c) {
      tokens.keys[i][c] += centres[i * 31 % 97 % 16][c];
      tokens.values[i][c] = 0.3f * tokens.values[i][c] + value_centres[i * 31 % 97 % 16][c];
    }
  }
  SummarySetup setup = setup_of("balancekv", Protocol::prefill, n / 4, tokens);
  const Matrix queries = random_matrix(32, dim, seed + 52);
  Matrix out(32, dim), exact(32, dim);
  std::vector<Segment> segments;
  std::unique_ptr<Summary> summary;
  Tokens sample{Matrix(n / 4, dim), Matrix(n / 4, dim)};
  if (method == "uniform") {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 rng(seed);
    std::shuffle(order.begin(), order.end(), rng);
    for (std::size_t i = 0; i < n / 4; ++i) {
      std::ranges::copy(tokens.keys[order[i]], sample.keys[i].begin());
      std::ranges::copy(tokens.values[order[i]], sample.values[i].begin());
    }
    Segment segment;
    segment.keys = view_f32(sample.keys.view());
    segment.values = view_f32(sample.values.view());
    segments.push_back(segment);
  } else {
    setup.policy = Policy::parse(method);
    setup.random.seed = seed;
    summary = make_summary(setup);
    summary->absorb(tokens.block(0, n));
    summary->segments(segments);
  }
  attend({queries.view(), {}, {}}, segments, setup.logits, out.view());
  Segment all;
  all.keys = view_f32(tokens.keys.view());
  all.values = view_f32(tokens.values.view());
  attend({queries.view(), {}, {}}, {&all, 1}, setup.logits, exact.view());
  std::vector<double> expected(exact.data(), exact.data() + 32 * dim);
  return relative_error({out.data(), 32 * dim}, expected);
}

TEST(BalanceKv, IsMoreExactThanSamplingWhereQueriesSeeManyClusters) {
  double balance = 0, authors = 0, uniform = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    balance += error_of_method("balancekv", seed);
    authors += error_of_method("balancekv:weights=authors", seed);
    uniform += error_of_method("uniform", seed);
  }
  EXPECT_LT(balance, 0.7 * uniform);
  EXPECT_LE(balance, authors);
}

/// Tokens whose values have norms in [1, 2): one bucket.
Tokens one_bucket(std::size_t n, std::size_t dim, std::uint64_t seed, float size = 0.5f) {
  Tokens tokens = random_tokens(n, dim, dim, seed, size);
  for (std::size_t i = 0; i < n; ++i) {
    double square = 0;
    for (float x : tokens.values[i]) square += double{x} * x;
    for (float& x : tokens.values[i]) x *= static_cast<float>(1.5 / std::sqrt(square));
  }
  return tokens;
}

// Algorithm 1 with one t and T everywhere: the smaller classes lose weight, in both sums alike.
TEST(BalanceKvStreamTheory, BothSumsLoseTheSameShareOfWeight) {
  const std::size_t n = 4000;
  double ratios = 0, least = 1e9, most = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const Tokens tokens = one_bucket(n, 16, seed);
    SummarySetup setup = setup_of("balancekv-stream:mode=theory", Protocol::stream, 620, tokens, n);
    setup.random.seed = seed;
    auto summary = make_summary(setup);
    summary->absorb(tokens.block(0, n));
    EXPECT_EQ(summary->report(), "");
    const double ratio = total_weight(*summary, false) / total_weight(*summary, true);
    ratios += ratio / 16;
    least = std::min(least, ratio);
    most = std::max(most, ratio);
    EXPECT_LT(total_weight(*summary, true), n);
  }
  EXPECT_NEAR(ratios, 1.0, 0.1) << least << " to " << most;
}

// Buckets of their own counts: each is an Algorithm 4, whatever order the tokens come in.
TEST(BalanceKvStreamTheory, BucketsHaveSchedulesOfTheirOwn) {
  const std::size_t n = 960;
  Tokens mixed = one_bucket(n, 8, 5), small = one_bucket(n, 8, 5);
  for (std::size_t i = 0; i < n; ++i) {
    if (i % 3 == 0) {
      for (float& x : mixed.values[i]) x *= 8;
    }
  }
  const std::string method = "balancekv-stream:mode=theory,t=20,T=6,epsilon=0.01";
  auto summary = make_summary(setup_of(method, Protocol::stream, 600, mixed, n));
  for (std::size_t i = 0; i < n; ++i) {
    summary->absorb(mixed.block(i, 1));
    std::size_t large_exact = 0, small_exact = 0;
    for (const KeptEntry& e : summary->kept()) {
      if (e.weight != 1.0f) continue;
      (e.position % 3 == 0 ? large_exact : small_exact) += 1;
    }
    // What has not been halved yet: the tokens of a bucket since its last whole batch.
    ASSERT_EQ(large_exact, (i / 3 + 1) % 20) << i;
    ASSERT_EQ(small_exact, (i + 1 - (i / 3 + 1)) % 20) << i;
  }
  EXPECT_EQ(summary->report(), "");
}

TEST(BalanceKvStreamTheory, ATooSmallBudgetIsReported) {
  const Tokens tokens = one_bucket(2000, 8, 3);
  auto summary = make_summary(
      setup_of("balancekv-stream:mode=theory,t=100,T=5", Protocol::stream, 150, tokens, 2000));
  summary->absorb(tokens.block(0, 2000));
  EXPECT_LE(summary->entries(), 150u);
  EXPECT_THAT(summary->report(), testing::HasSubstr("no room for batches of t"));
}

TEST(BalanceKvStreamTheory, TheRadiusSetsTheBatch) {
  const Tokens tokens = one_bucket(64, 16, 3);
  // t = √16·e^{2·1/√16}/0.1 = 65.9: nothing is halved before token 66.
  auto summary = make_summary(setup_of("balancekv-stream:mode=theory,r=1,epsilon=0.1",
                                       Protocol::stream, 400, tokens, 1000));
  summary->absorb(tokens.block(0, 64));
  for (const KeptEntry& e : summary->kept()) EXPECT_TRUE(e.weight <= 1 && e.normaliser_weight <= 1);
  auto shorter = make_summary(setup_of("balancekv-stream:mode=theory,r=1,epsilon=0.11",
                                       Protocol::stream, 400, tokens, 1000));
  shorter->absorb(tokens.block(0, 64));  // t = 60
  EXPECT_TRUE(std::ranges::any_of(shorter->kept(), [](auto& e) { return e.weight == 2; }));
}

TEST(BalanceKvStreamTheory, CachesOfTheOldSchedulesAreRefusedByName) {
  const Tokens tokens = one_bucket(300, 8, 3);
  const SummarySetup setup =
      setup_of("balancekv-stream:mode=theory", Protocol::stream, 100, tokens, 300);
  auto summary = make_summary(setup);
  summary->absorb(tokens.block(0, 300));
  MemoryWriter out;
  summary->save(out);
  auto again = make_summary(setup);
  {
    ByteReader in(out.bytes, "cache");
    again->load(in);
  }
  EXPECT_TRUE(same(again->kept(), summary->kept()));
  // Files from before had no mark and no counts.
  ByteReader old(std::span(out.bytes).subspan(8), "old.cache");
  EXPECT_THAT(error_of([&] { again->load(old); }), testing::HasSubstr("older mode=theory"));
}

// Equation 2 with the batch that Theorem 3.1 gives for ε: ‖z − exact‖ ≤ ε·‖softmax‖₂·‖V‖_F, up to
// the theorem's logarithms, here a factor 2·ln n. Memory grows like 1/ε, up to logarithms again.
TEST(BalanceKvStreamTheory, MeetsEquationTwoAtTheTheoremsBatch) {
  const std::size_t n = 2048, d = 4;
  const double r = 0.7;
  std::size_t before = 0;
  for (double epsilon : {0.4, 0.2, 0.1, 0.05}) {
    std::size_t beyond = 0, most = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Tokens tokens = random_tokens(n, d, d, seed);
      Matrix query = random_matrix(1, d, seed + 500);
      auto shorten = [&](std::span<float> row) {
        double square = 0;
        for (float x : row) square += double{x} * x;
        for (float& x : row) x *= static_cast<float>(r / std::max(r, std::sqrt(square)));
      };
      for (std::size_t i = 0; i < n; ++i) shorten(tokens.keys[i]);
      shorten(query[0]);
      SummarySetup setup =
          setup_of("balancekv-stream:mode=theory,r=0.7,epsilon=" + std::to_string(epsilon),
                   Protocol::stream, n, tokens, n);
      setup.random.seed = seed;
      auto summary = make_summary(setup);
      summary->absorb(tokens.block(0, n));
      EXPECT_EQ(summary->report(), "");
      most = std::max(most, summary->entries());
      double exact[d] = {}, estimate[d] = {}, sum = 0, squares = 0, values = 0, below = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double e = factor(tokens.keys[i], query[0], setup.logits.scale);
        sum += e;
        squares += e * e;
        for (std::size_t c = 0; c < d; ++c) {
          exact[c] += e * tokens.values[i][c];
          values += double{tokens.values[i][c]} * tokens.values[i][c];
        }
      }
      for (const KeptEntry& kept : summary->kept()) {
        const auto i = static_cast<std::size_t>(kept.position);
        const double e = factor(tokens.keys[i], query[0], setup.logits.scale);
        below += kept.normaliser_weight * e;
        for (std::size_t c = 0; c < d; ++c) estimate[c] += kept.weight * e * tokens.values[i][c];
      }
      double error = 0;
      for (std::size_t c = 0; c < d; ++c) {
        error += std::pow(estimate[c] / below - exact[c] / sum, 2);
      }
      const double bound = epsilon * std::sqrt(squares) / sum * std::sqrt(values);
      beyond += std::sqrt(error) > 2 * bound * std::log(static_cast<double>(n)) ? 1 : 0;
    }
    EXPECT_EQ(beyond, 0u) << epsilon;
    if (before != 0) {
      EXPECT_LE(most, 3 * before);
    }
    before = most;
  }
}

}  // namespace
}  // namespace ballast::test
