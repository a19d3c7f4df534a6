#include "methods/query_moments.h"
#include "methods/scored_support.h"

namespace ballast::test {
namespace {

TEST(TriAttention, Contract) {
  check_contract({.method = "triattention:budget=64", .any_chunking = false});
}

Rotary rotary_of(std::size_t pairs, bool side_by_side, float magnitude) {
  Rotary rotary;
  rotary.pairs = side_by_side;
  rotary.magnitude = magnitude;
  for (std::size_t f = 0; f < pairs; ++f)
    rotary.frequencies.push_back(1.0f / static_cast<float>(1 + 9 * f * f));
  return rotary;
}

/// Places of a pair's elements.
std::pair<std::size_t, std::size_t> pair_of(const Rotary& rotary, std::size_t f) {
  if (rotary.pairs) return {2 * f, 2 * f + 1};
  return {f, f + rotary.frequencies.size()};
}

/// Turned to a position, in double.
std::vector<double> turned(const Rotary& rotary, std::vector<double> row, double position) {
  for (std::size_t f = 0; f < rotary.frequencies.size(); ++f) {
    const auto [a, b] = pair_of(rotary, f);
    const double angle = position * double{rotary.frequencies[f]}, x = row[a], y = row[b];
    row[a] = double{rotary.magnitude} * (x * std::cos(angle) - y * std::sin(angle));
    row[b] = double{rotary.magnitude} * (x * std::sin(angle) + y * std::cos(angle));
  }
  return row;
}

std::vector<double> direct(const HeadStream& stream, const std::vector<Matrix>& queries,
                           const Rotary& rotary, Position now) {
  const std::size_t n = stream.size(), dim = stream.keys.cols();
  std::vector<double> best(n, -1e300);
  for (const Matrix& of_head : queries) {
    std::vector<double> s(n);
    const auto count = static_cast<double>(of_head.rows() - 4);
    for (std::size_t t = 4; t < of_head.rows(); ++t) {
      for (std::size_t k = 0; k < 17; ++k) {
        const std::vector<double> q = turned(rotary, {of_head[t].begin(), of_head[t].end()},
                                             double(now) - 1 + double(std::size_t{1} << k));
        for (std::size_t i = 0; i < n; ++i) {
          for (std::size_t c = 0; c < dim; ++c)
            s[i] += q[c] * double{stream.keys[i][c]} / count / 17;
        }
      }
    }
    for (std::size_t f = 0; f < rotary.frequencies.size(); ++f) {
      const auto [a, b] = pair_of(rotary, f);
      double x = 0, y = 0, square = 0;
      for (std::size_t t = 4; t < of_head.rows(); ++t) {
        const double u = of_head[t][a], v = of_head[t][b];
        x += u / count;
        y += v / count;
        square += (u * u + v * v) / count;
      }
      const double weight =
          (std::sqrt(square) - std::sqrt(x * x + y * y)) * double{rotary.magnitude};
      for (std::size_t i = 0; i < n; ++i) {
        const double u = stream.keys[i][a], v = stream.keys[i][b];
        s[i] += weight * std::sqrt(u * u + v * v);
      }
    }
    double mean = 0, square = 0;
    for (double x : s) mean += x / double(n);
    for (double x : s) square += (x - mean) * (x - mean) / double(n);
    for (std::size_t i = 0; i < n; ++i)
      best[i] = std::max(best[i], square > 0 ? (s[i] - mean) / std::sqrt(square) : 0.0);
  }
  return best;
}

TEST(TriAttention, FollowsTheFormula) {
  for (const std::size_t n : {2u, 33u, 200u}) {
    for (const std::size_t dim : {2u, 7u, 16u}) {
      for (const bool side_by_side : {false, true}) {
        const Rotary rotary =
            rotary_of(std::min<std::size_t>(dim / 2, 5), side_by_side, n == 33 ? 1.2f : 1.0f);
        std::vector<Matrix> queries;
        QueryMoments moments(2, dim, rotary);
        for (std::size_t g = 0; g < 2; ++g) {
          queries.push_back(random_matrix(60, dim, 17 + g, 0.8f));
          for (std::size_t t = 0; t < 60; ++t) {
            queries[g][t][0] += 1.0f;
            const std::vector<double> q =
                turned(rotary, {queries[g][t].begin(), queries[g][t].end()}, double(t));
            moments.add(g, std::vector<float>(q.begin(), q.end()), static_cast<Position>(t));
          }
        }
        HeadStream stream = random_stream(n, dim, n + dim);
        stream.moments = &moments;
        const SummarySetup setup = setup_of("triattention:budget=9", 10, dim, Protocol::prefill, n);
        const Position now = stream.block(0, n).now;
        expect_follows(setup, stream, 2e-4,
                       [&](const HeadStream& s) { return direct(s, queries, rotary, now); });
      }
    }
  }
}

TEST(TriAttention, EvictsWhatItGenerates) {
  EXPECT_FALSE(Policy::parse("triattention").keeps_generated());
  EXPECT_TRUE(Policy::parse("triattention").needs().query_moments);
}

}  // namespace
}  // namespace ballast::test
