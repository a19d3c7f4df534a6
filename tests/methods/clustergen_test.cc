#include <map>

#include "ballast/testing/summary_contract.h"
#include "heap_bytes.h"
#include "methods/key_clusters.h"
#include "statistics.h"

namespace ballast::test {
namespace {

const char* kMethod = "clustergen:budget=64";

TEST(ClusterGen, Contract) {
  check_contract({.method = "clustergen:budget=64", .tokens = 600});
  check_contract({.method = "clustergen:budget=64,delta=2.5,t=3,clusters=9", .tokens = 600});
  check_contract({.method = "clustergen:budget=64,s=3,t=1", .tokens = 600});
}

// Keys in groups of radius about 0.1, values of very different norms.
HeadStream clustered_stream(std::size_t n, std::size_t dim, std::size_t groups,
                            std::uint64_t seed) {
  HeadStream s = random_stream(n, dim, seed);
  const Matrix centres = random_matrix(groups, dim, seed + 7, 1.5f);
  std::mt19937_64 rng(seed);
  std::lognormal_distribution<float> norm(0.0f, 0.8f);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t g = rng() % groups;
    const float size = norm(rng);
    for (std::size_t c = 0; c < dim; ++c) {
      s.keys[i][c] = centres[g][c] + 0.1f * s.keys[i][c];
      s.values[i][c] *= size;
    }
  }
  return s;
}

double squared_norm(std::span<const float> row) {
  double sum = 0;
  for (float x : row) sum += double{x} * x;
  return sum;
}

struct UnbiasedCase {
  const char* method;
  std::size_t capacity;
  bool merged;
};

TEST(ClusterGen, NumeratorAndNormaliserAreUnbiased) {
  const std::size_t n = 150, dim = 6;
  const HeadStream stream = clustered_stream(n, dim, 12, 3);
  const Matrix query = random_matrix(1, dim, 12);
  const double scale = 1.0 / std::sqrt(6.0);
  const Sums exact = exact_sums(stream, query[0], scale);
  for (const UnbiasedCase& test : {UnbiasedCase{"clustergen:budget=9,delta=1", 60, false},
                                   UnbiasedCase{"clustergen:budget=9,t=3", 40, false},
                                   UnbiasedCase{"clustergen:budget=9,t=1,clusters=3", 20, false},
                                   UnbiasedCase{"clustergen:budget=9,t=2", 24, true}}) {
    std::vector<std::vector<double>> samples(dim + 1);
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      const auto setup = setup_of(test.method, test.capacity, dim, Protocol::stream, 0, seed);
      auto summary = make_summary(setup);
      if (test.merged) {
        auto second = make_summary(setup);
        summary->absorb(stream.block(0, 60));
        second->absorb(stream.block(60, n - 60));
        summary->merge(*second);
      } else {
        summary->absorb(stream.block(0, n));
      }
      const Sums sums = sums_of(segments_of(*summary), query[0], scale);
      for (std::size_t c = 0; c < dim; ++c) samples[c].push_back(sums.numerator[c]);
      samples[dim].push_back(sums.normaliser);
    }
    for (std::size_t c = 0; c < dim; ++c) {
      EXPECT_LT(t_statistic(samples[c], exact.numerator[c]), kTLimit) << test.method << " " << c;
    }
    EXPECT_LT(t_statistic(samples[dim], exact.normaliser), kTLimit) << test.method;
  }
}

// How often each token is a value sample, from the weights: μ / (s‖v‖²) for each slot.
void count_value_samples(const Summary& summary, const HeadStream& stream, double mu, double s,
                         std::vector<double>& counts) {
  double slots = 0;
  for (const KeptEntry& e : summary.kept()) {
    if (e.weight == 0) continue;
    const auto at = static_cast<std::size_t>(e.position);
    const double held = e.weight * s * squared_norm(stream.values[at]) / mu;
    EXPECT_NEAR(held, std::round(held), 1e-3);
    counts[at] += std::round(held);
    slots += std::round(held);
  }
  EXPECT_EQ(slots, s);
}

TEST(ClusterGen, ValueSamplesFollowTheSquaredNorms) {
  const std::size_t n = 40, dim = 4, s = 10, runs = 1000;
  HeadStream stream = clustered_stream(n, dim, 5, 1);
  std::ranges::fill(stream.values[17], 0.0f);
  std::ranges::fill(stream.values[0], 0.0f);
  double mu = 0;
  for (std::size_t i = 0; i < n; ++i) mu += squared_norm(stream.values[i]);
  for (bool merged : {false, true}) {
    std::vector<double> counts(n);
    for (std::uint64_t seed = 0; seed < runs; ++seed) {
      const auto setup = setup_of("clustergen:budget=9,s=10", 30, dim, Protocol::stream, 0, seed);
      auto summary = make_summary(setup);
      if (merged) {
        auto second = make_summary(setup);
        summary->absorb(stream.block(0, 13));
        second->absorb(stream.block(13, n - 13));
        summary->merge(*second);
      } else {
        summary->absorb(stream.block(0, n));
      }
      count_value_samples(*summary, stream, mu, s, counts);
    }
    EXPECT_EQ(counts[0], 0.0);
    EXPECT_EQ(counts[17], 0.0);
    std::vector<double> seen, expected;
    for (std::size_t i = 0; i < n; ++i) {
      if (i == 0 || i == 17) continue;
      seen.push_back(counts[i]);
      expected.push_back(squared_norm(stream.values[i]) / mu * runs * s);
    }
    EXPECT_LT(chi_square(seen, expected), chi_square_limit(seen.size() - 1)) << merged;
  }
}

TEST(KeyClusters, BytesAreWhatTheHeapHasGrownBy) {
  if (!kHeapCanBeAsked) GTEST_SKIP() << "a sanitizer keeps the heap";
  constexpr std::size_t kMany = 200;
  const SummarySetup setup = setup_of(kMethod, 9, 256, Protocol::stream, 0, 1);
  std::vector<KeyClusters> many;
  many.reserve(kMany);
  const std::size_t before = heap_bytes();
  for (std::size_t i = 0; i < kMany; ++i) many.emplace_back(setup, 0.5, 2, 3);
  const std::size_t grown = heap_bytes() - before;
  const std::size_t told = kMany * many[0].bytes();
  // The allocator rounds up some fifteen arrays; a key takes 1,024 bytes.
  EXPECT_LE(told, grown);
  EXPECT_GE(told + 900 * kMany, grown);
}

// Runs KeyClusters alone. Members of a cluster are known from the groups of the stream.
TEST(ClusterGen, SamplesOfAClusterAreUniform) {
  const std::size_t dim = 4, t = 3, n = 60, runs = 1500;
  // Three groups far from each other, of 30, 20 and 10 tokens mixed.
  HeadStream stream = random_stream(n, dim, 5);
  std::vector<std::size_t> group(n);
  for (std::size_t i = 0; i < n; ++i) {
    group[i] = i % 6 < 3 ? 0 : i % 6 < 5 ? 1 : 2;
    for (std::size_t c = 0; c < dim; ++c) stream.keys[i][c] *= 0.1f;
    stream.keys[i][0] += 50.0f * static_cast<float>(group[i]);
  }
  // most = 3: clusters as given. With δ = 0 and most = 8 they come about by uniting smaller ones.
  for (auto [delta, most] : {std::pair(5.0, 3), std::pair(0.0, 8), std::pair(0.0, 3)}) {
    std::vector<double> counts(n), expected(n);
    std::size_t whole = 0;
    for (std::uint64_t seed = 0; seed < runs; ++seed) {
      KeyClusters clusters(setup_of(kMethod, 9, dim, Protocol::stream, 0, seed), delta, t,
                           static_cast<std::size_t>(most));
      for (std::size_t i = 0; i < n; ++i) clusters.add(stream.block(i, 1), 0);
      std::uint64_t tokens = 0;
      for (std::size_t c = 0; c < clusters.size(); ++c) {
        tokens += clusters.tokens_of(c);
        // Every token is as likely as any other of its cluster: over all clusters and samples,
        // weighted by size, each token is expected t times.
        for (std::size_t j = 0; j < t; ++j) {
          const auto at = static_cast<std::size_t>(clusters.sample(c, j));
          counts[at] += static_cast<double>(clusters.tokens_of(c));
        }
      }
      ASSERT_EQ(tokens, n);
      whole += clusters.size() == 3;
    }
    if (most == 3) {
      EXPECT_GT(whole, 0u);
    }
    // A count is a sum of cluster sizes; scaled by the largest size it varies at most as a count.
    const double size = 30;
    for (std::size_t i = 0; i < n; ++i) {
      counts[i] /= size;
      expected[i] = static_cast<double>(runs * t) / size;
    }
    EXPECT_LT(chi_square(counts, expected), chi_square_limit(n - 1)) << delta << " " << most;
  }
}

TEST(ClusterGen, SamplesOfOneClusterPassThePlainChiSquare) {
  const std::size_t n = 25, draws = 8000;
  const HeadStream stream = random_stream(n, 4, 5);
  for (std::size_t t : {4u, 64u, 65u, 160u}) {
    const std::size_t runs = draws / t;
    // Of a token, and of a pair of neighbouring samples: they are independent.
    std::vector<double> counts(n), expected(n, static_cast<double>(runs * t) / n);
    double same = 0;
    for (std::uint64_t seed = 0; seed < runs; ++seed) {
      KeyClusters clusters(setup_of(kMethod, 9, 4, Protocol::stream, 0, seed), 100.0, t, 2);
      for (std::size_t i = 0; i < n; ++i) clusters.add(stream.block(i, 1), 0);
      ASSERT_EQ(clusters.size(), 1u);
      for (std::size_t j = 0; j < t; ++j) {
        counts[static_cast<std::size_t>(clusters.sample(0, j))] += 1;
        same += clusters.sample(0, j) == clusters.sample(0, (j + 1) % t);
      }
    }
    EXPECT_LT(chi_square(counts, expected), chi_square_limit(n - 1)) << t;
    const double pairs = static_cast<double>(runs * t), mean = pairs / n;
    EXPECT_NEAR(same, mean, 5 * std::sqrt(mean)) << t;
  }
}

// Samples of a union of clusters: the last cluster standing of eight forced into one.
TEST(ClusterGen, SamplesStayUniformWhenClustersUnite) {
  const std::size_t n = 24, runs = 4000, t = 2;
  HeadStream stream = random_stream(n, 4, 5);
  std::vector<double> counts(n), expected(n, static_cast<double>(runs * t) / n);
  for (std::uint64_t seed = 0; seed < runs; ++seed) {
    const auto setup = setup_of(kMethod, 9, 4, Protocol::stream, 0, seed);
    KeyClusters clusters(setup, 0, t, 1);
    for (std::size_t i = 0; i < 9; ++i) clusters.add(stream.block(i, 1), 0);
    KeyClusters more(setup, 0, t, 1);
    for (std::size_t i = 9; i < n; ++i) more.add(stream.block(i, 1), 0);
    clusters.merge(more);
    ASSERT_EQ(clusters.size(), 1u);
    ASSERT_EQ(clusters.tokens_of(0), n);
    for (std::size_t j = 0; j < t; ++j) {
      counts[static_cast<std::size_t>(clusters.sample(0, j))] += 1;
    }
  }
  EXPECT_LT(chi_square(counts, expected), chi_square_limit(n - 1));
}

// Algorithm 1, lines 11 to 22, with the clusters' members written down.
TEST(ClusterGen, ClustersAreThoseOfTheAlgorithm) {
  const std::size_t n = 400, dim = 5;
  const HeadStream stream = clustered_stream(n, dim, 30, 2);
  for (double delta : {0.2, 0.5, 2.0}) {
    KeyClusters clusters(setup_of(kMethod, 9, dim), delta, 3, n);
    std::vector<std::pair<std::size_t, std::vector<std::size_t>>> naive;  // representative, members
    for (std::size_t i = 0; i < n; ++i) {
      clusters.add(stream.block(i, 1), 0);
      double best = 1e300;
      std::size_t at = 0;
      for (std::size_t c = 0; c < naive.size(); ++c) {
        double sum = 0;
        for (std::size_t x = 0; x < dim; ++x) {
          const double gap = double{stream.keys[i][x]} - stream.keys[naive[c].first][x];
          sum += gap * gap;
        }
        if (sum < best) {
          best = sum;
          at = c;
        }
      }
      if (best <= delta * delta) {
        naive[at].second.push_back(i);
      } else {
        naive.push_back({i, {i}});
      }
      ASSERT_EQ(clusters.size(), naive.size());
    }
    for (std::size_t c = 0; c < naive.size(); ++c) {
      ASSERT_EQ(clusters.tokens_of(c), naive[c].second.size());
      for (std::size_t j = 0; j < 3; ++j) {
        const auto sample = static_cast<std::size_t>(clusters.sample(c, j));
        ASSERT_TRUE(std::ranges::find(naive[c].second, sample) != naive[c].second.end());
      }
    }
    EXPECT_EQ(clusters.growths(), 0u);
  }
}

struct Bound {
  std::vector<double> answer;  ///< exact
  double limit = 0;            ///< ‖softmax‖₂ ‖V‖_op
};

// ‖V‖_op by power iteration on VᵀV.
double operator_norm(const Matrix& v) {
  std::vector<double> x(v.cols(), 1.0);
  double norm = 0;
  for (int step = 0; step < 200; ++step) {
    std::vector<double> next(v.cols(), 0.0);
    for (std::size_t i = 0; i < v.rows(); ++i) {
      double dot = 0;
      for (std::size_t c = 0; c < v.cols(); ++c) dot += v[i][c] * x[c];
      for (std::size_t c = 0; c < v.cols(); ++c) next[c] += dot * v[i][c];
    }
    norm = 0;
    for (double y : next) norm += y * y;
    norm = std::sqrt(norm);
    for (std::size_t c = 0; c < x.size(); ++c) x[c] = next[c] / norm;
  }
  return std::sqrt(norm);
}

Bound bound_of(const HeadStream& stream, std::span<const float> query, double scale) {
  const Sums exact = exact_sums(stream, query, scale);
  Bound bound{exact.numerator, 0};
  double squares = 0;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    double dot = 0;
    for (std::size_t c = 0; c < query.size(); ++c) dot += double{stream.keys[i][c]} * query[c];
    squares += std::exp(2 * dot * scale);
  }
  for (double& x : bound.answer) x /= exact.normaliser;
  bound.limit = std::sqrt(squares) / exact.normaliser * operator_norm(stream.values);
  return bound;
}

// Theorem 2.2 with constants that its proof allows: Chebyshev gives the numerator an error above
// ε/3 with probability at most 1/8 for s = 72 d/ε², Chernoff the normaliser of n clusters at most
// for t = 27 ε⁻² e^{2δr} ln(2n · 8). So a run exceeds the bound with probability at most 1/4, and
// more than 15 of 20 runs with one below 1e-6.
TEST(ClusterGen, ErrorIsWithinTheTheorem) {
  const std::size_t n = 300, dim = 3, runs = 20;
  const double epsilon = 0.5, delta = 0.5, r = 0.3, scale = 1.0 / std::sqrt(3.0);
  HeadStream stream = clustered_stream(n, dim, 12, 8);
  // Values with much in common: else zero would be an answer within the bound.
  for (std::size_t i = 0; i < n; ++i) stream.values[i][0] += 4.0f;
  Matrix query = random_matrix(1, dim, 5);
  const double length = std::sqrt(squared_norm(query[0]));
  for (float& x : query[0]) x *= static_cast<float>(r / scale / length);
  const auto s = static_cast<int>(72 * dim / (epsilon * epsilon));
  const auto t =
      static_cast<int>(27 / (epsilon * epsilon) * std::exp(2 * delta * r) * std::log(2.0 * n * 8));
  const std::string method = "clustergen:budget=9,clusters=60,delta=" + std::to_string(delta) +
                             ",s=" + std::to_string(s) + ",t=" + std::to_string(t);
  const Bound bound = bound_of(stream, query[0], scale);
  double norm = 0;
  for (double x : bound.answer) norm += x * x;
  ASSERT_GT(std::sqrt(norm), epsilon * bound.limit);
  std::size_t beyond = 0;
  for (std::uint64_t seed = 0; seed < runs; ++seed) {
    auto summary = make_summary(setup_of(method, 60000, dim, Protocol::stream, 0, seed));
    summary->absorb(stream.block(0, n));
    ASSERT_EQ(summary->report(), "");  // δ did not grow
    const Sums sums = sums_of(segments_of(*summary), query[0], scale);
    double squares = 0;
    for (std::size_t c = 0; c < dim; ++c) {
      const double off = sums.numerator[c] / sums.normaliser - bound.answer[c];
      squares += off * off;
    }
    beyond += std::sqrt(squares) > epsilon * bound.limit;
  }
  EXPECT_LE(beyond, 15u);
}

// What the theorem rests on, to the last factor: s independent samples by squared norm have the
// mean squared error (‖a‖² ‖V‖²_F - ‖aᵀV‖²) / s.
TEST(ClusterGen, NumeratorVariesAsIndependentSamplesDo) {
  const std::size_t n = 200, dim = 5, s = 20;
  const double scale = 1.0 / std::sqrt(5.0);
  const HeadStream stream = clustered_stream(n, dim, 12, 8);
  const Matrix query = random_matrix(1, dim, 5);
  const Sums exact = exact_sums(stream, query[0], scale);
  double weights = 0, values = 0, answer = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double dot = 0;
    for (std::size_t c = 0; c < dim; ++c) dot += double{stream.keys[i][c]} * query[0][c];
    weights += std::exp(2 * dot * scale);
    values += squared_norm(stream.values[i]);
  }
  for (double x : exact.numerator) answer += x * x;
  std::vector<double> squares;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    auto summary =
        make_summary(setup_of("clustergen:budget=9,s=20,t=1", 30, dim, Protocol::stream, 0, seed));
    summary->absorb(stream.block(0, n));
    const Sums sums = sums_of(segments_of(*summary), query[0], scale);
    double square = 0;
    for (std::size_t c = 0; c < dim; ++c) {
      square += (sums.numerator[c] - exact.numerator[c]) * (sums.numerator[c] - exact.numerator[c]);
    }
    squares.push_back(square);
  }
  EXPECT_LT(t_statistic(squares, (weights * values - answer) / s), kTLimit);
}

TEST(ClusterGen, NormaliserWeightsAddUpToTheTokens) {
  const HeadStream stream = clustered_stream(3000, 8, 40, 1);
  for (std::size_t capacity : {2u, 5u, 40u, 200u}) {
    auto summary = make_summary(setup_of(kMethod, capacity, 8));
    summary->absorb(stream.block(0, 3000));
    double total = 0;
    for (const KeptEntry& e : summary->kept()) total += e.normaliser_weight;
    EXPECT_NEAR(total, 3000.0, 0.1) << capacity;
  }
}

TEST(ClusterGen, TooManyClustersMakeTheDistanceGrowAndAreReported) {
  const HeadStream stream = random_stream(500, 8, 1);
  auto summary = make_summary(setup_of("clustergen:budget=64,clusters=7", 40, 8));
  EXPECT_EQ(summary->report(), "");
  summary->absorb(stream.block(0, 500));
  EXPECT_THAT(summary->report(), testing::HasSubstr("at most 7"));
  EXPECT_THAT(summary->report(), testing::HasSubstr("grew"));
  auto roomy = make_summary(setup_of("clustergen:budget=64,delta=100,clusters=7", 40, 8));
  roomy->absorb(stream.block(0, 500));
  EXPECT_EQ(roomy->report(), "");
  auto tiny = make_summary(setup_of(kMethod, 1, 8));
  tiny->absorb(stream.block(0, 500));
  EXPECT_THAT(tiny->report(), testing::HasSubstr("nothing is kept"));
  EXPECT_EQ(tiny->entries(), 0u);
}

TEST(ClusterGen, RowsStayWithinTheBytesOfTheCapacity) {
  for (std::size_t value_dim : {2u, 8u, 40u}) {
    for (std::size_t capacity : {2u, 9u, 100u}) {
      for (const char* method : {"clustergen:budget=9", "clustergen:budget=9,t=5",
                                 "clustergen:budget=9,s=100000", "clustergen:budget=9,s=1"}) {
        auto setup = setup_of(method, capacity, 8);
        setup.value_dim = value_dim;
        auto summary = make_summary(setup);
        const Matrix keys = random_matrix(700, 8, 1), values = random_matrix(700, value_dim, 2);
        Block block;
        block.keys = view_f32(keys.view());
        block.values = view_f32(values.view());
        summary->absorb(block);
        EXPECT_LE(summary->entries(), capacity);
        const std::size_t key = row_bytes(StorageType::f32, 8);
        const std::size_t value = row_bytes(StorageType::f32, value_dim);
        std::size_t bytes = 0;
        for (const Segment& s : segments_of(*summary)) {
          bytes += s.keys.rows * (s.role == Role::numerator ? key + value : key);
        }
        EXPECT_LE(bytes, capacity * (key + value)) << method;
      }
    }
  }
}

TEST(ClusterGen, ValuesOfZeroGiveZero) {
  HeadStream stream = random_stream(300, 8, 1);
  std::fill_n(stream.values.data(), 300 * 8, 0.0f);
  auto setup = setup_of(kMethod, 20, 8);
  auto summary = make_summary(setup);
  summary->absorb(stream.block(0, 300));
  const Matrix q = random_matrix(1, 8, 4);
  Matrix out(1, 8);
  attend({q.view(), {}, {}}, segments_of(*summary), setup.logits, out.view());
  for (float x : out[0]) EXPECT_EQ(x, 0.0f);
}

TEST(ClusterGen, ExactSummariesUniteExactlyWhileTheyFit) {
  const auto setup = setup_of(kMethod, 50, 8, Protocol::prefill);
  const HeadStream stream = random_stream(120, 8, 1);
  auto a = make_summary(setup), b = make_summary(setup), c = make_summary(setup);
  a->absorb(stream.block(0, 20));
  b->absorb(stream.block(20, 30));
  c->absorb(stream.block(50, 40));
  a->merge(*b);
  EXPECT_EQ(kept_positions(*a).size(), 50u);
  a->merge(*c);
  // What is sampled does not depend on when the tokens met.
  auto whole = make_summary(setup);
  whole->absorb(stream.block(0, 90));
  expect_same_kept(*a, *whole);
  auto other = make_summary(setup_of("clustergen:budget=64,t=7", 50, 8));
  EXPECT_THAT(error_of([&] { a->merge(*other); }), testing::HasSubstr("same setup"));
}

}  // namespace
}  // namespace ballast::test
