#include "attention/rotary.h"
#include "methods/query_moments.h"
#include "methods/scored_support.h"

namespace ballast::test {
namespace {

using Square = std::vector<std::vector<double>>;

Rotary rotary_of(std::size_t dim, bool pairs, float magnitude) {
  Rotary rotary;
  rotary.pairs = pairs;
  rotary.magnitude = magnitude;
  for (std::size_t i = 0; i < dim / 2; ++i)
    rotary.frequencies.push_back(1.0f / float(1 + 7 * i * i));
  return rotary;
}

/// The rotation of a position as a matrix, from its effect on unit vectors.
Square rotation(const Rotary& rotary, std::size_t dim, double position) {
  Square out(dim, std::vector<double>(dim));
  std::vector<float> table(2 * rotary.frequencies.size()), row(dim);
  rotation_at(rotary, position, table);
  for (std::size_t c = 0; c < dim; ++c) {
    std::ranges::fill(row, 0.0f);
    row[c] = 1;
    rotate(rotary, table, dim, row);
    for (std::size_t r = 0; r < dim; ++r) out[r][c] = row[r];
  }
  return out;
}

/// Queries before rotation, of two query heads, and what the cache notes of them.
struct Asked {
  std::vector<Matrix> queries;
  QueryMoments moments;

  Asked(std::size_t tokens, std::size_t dim, const Rotary& rotary, bool turned)
      : moments(2, dim, turned ? rotary : Rotary{}) {
    std::vector<float> table(2 * rotary.frequencies.size()), row(dim);
    for (std::size_t g = 0; g < 2; ++g) {
      queries.push_back(random_matrix(tokens, dim, 17 + g, 0.8f));
      for (std::size_t t = 0; t < tokens; ++t) {
        queries[g][t][0] += 1.0f;
        std::ranges::copy(queries[g][t], row.begin());
        if (turned) {
          rotation_at(rotary, double(t), table);
          rotate(rotary, table, dim, row);
        }
        moments.add(g, row, static_cast<Position>(t));
      }
    }
  }
};

std::vector<double> direct(const HeadStream& stream, const Asked& asked, const Rotary& rotary,
                           Position now, std::size_t horizon, double epsilon) {
  const std::size_t n = stream.size(), dim = stream.keys.cols();
  const double scale = 1 / std::sqrt(double(dim));
  Square mean_rotation(dim, std::vector<double>(dim));
  for (std::size_t t = 0; t < horizon; ++t) {
    const Square one = rotation(rotary, dim, double(now) + double(t));
    for (std::size_t r = 0; r < dim; ++r) {
      for (std::size_t c = 0; c < dim; ++c) mean_rotation[r][c] += one[r][c] / double(horizon);
    }
  }
  std::vector<double> expected(n);
  for (const Matrix& queries : asked.queries) {
    const std::size_t count = queries.rows() > 4 ? queries.rows() - 4 : 0;
    // Every query turned by the mean rotation; mean and covariance of these.
    Square turned;
    for (std::size_t t = 4; t < queries.rows(); ++t) {
      turned.emplace_back(dim);
      for (std::size_t r = 0; r < dim; ++r) {
        for (std::size_t c = 0; c < dim; ++c)
          turned.back()[r] += mean_rotation[r][c] * double{queries[t][c]};
      }
    }
    std::vector<double> z(n);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      // k^T S k is the variance of the products with k.
      double first = 0, second = 0;
      for (const std::vector<double>& q : turned) {
        double dot = 0;
        for (std::size_t c = 0; c < dim; ++c) dot += q[c] * double{stream.keys[i][c]};
        first += dot / double(count);
        second += dot * dot / double(count);
      }
      z[i] = scale * first + scale * scale * (second - first * first) / 2;
      sum += std::exp(z[i]);
    }
    for (std::size_t i = 0; i < n; ++i) expected[i] += std::exp(z[i]) / sum / 2;
  }
  for (std::size_t i = 0; i < n; ++i) {
    double square = 0;
    for (float x : stream.values[i]) square += double{x} * x;
    expected[i] = (expected[i] + epsilon) * std::sqrt(square);
  }
  return expected;
}

TEST(ExpectedAttention, Contract) {
  check_contract({.method = "expected-attention:budget=64", .any_chunking = false});
}

TEST(ExpectedAttention, FollowsTheFormula) {
  for (std::size_t n : {0u, 1u, 2u, 33u, 200u}) {
    for (std::size_t dim : {2u, 7u, 16u}) {
      for (bool pairs : {false, true}) {
        for (std::size_t tokens : {3u, 5u, 90u}) {
          const Rotary rotary = rotary_of(dim, pairs, tokens == 5 ? 1.2f : 1.0f);
          const Asked asked(tokens, dim, rotary, true);
          HeadStream stream = random_stream(n, dim, n + dim);
          stream.moments = &asked.moments;
          const SummarySetup setup = setup_of("expected-attention:budget=9,horizon=50,epsilon=0.01",
                                              10, dim, Protocol::prefill, n);
          const Position now = stream.block(0, n).now;
          expect_follows(setup, stream, 2e-5, [&](const HeadStream& s) {
            return direct(s, asked, rotary, now, 50, 0.01);
          });
        }
      }
    }
  }
}

TEST(ExpectedAttention, QueriesThatDoNotTurnStayAsTheyAre) {
  const Asked asked(40, 6, {}, false);
  HeadStream stream = random_stream(80, 6, 3);
  stream.moments = &asked.moments;
  const SummarySetup setup = setup_of("expected-attention:budget=9", 10, 6, Protocol::prefill, 80);
  expect_follows(setup, stream, 2e-5,
                 [&](const HeadStream& s) { return direct(s, asked, {}, 0, 1, 0.02); });
}

TEST(QueryMoments, GoOnFromAFileAndRefuseWhatIsNotANumber) {
  const Asked asked(40, 6, rotary_of(6, false, 1), true);
  MemoryWriter out;
  asked.moments.save(out);
  EXPECT_EQ(out.bytes.size(), 8 * asked.moments.saved_numbers());
  QueryMoments copy(2, 6, rotary_of(6, false, 1));
  ByteReader in(out.bytes);
  copy.load(in);
  EXPECT_EQ(copy.turned(1, 40, 9).covariance, asked.moments.turned(1, 40, 9).covariance);
  EXPECT_EQ(copy.bytes(), out.bytes.size());
  // Before the first query there is nothing to hold, and a short file is refused at once.
  const QueryMoments none(2, 6, {});
  MemoryWriter zeros;
  none.save(zeros);
  EXPECT_EQ(zeros.bytes.size(), out.bytes.size());
  ByteReader empty(zeros.bytes), cut(std::span<const std::byte>(out.bytes).first(100));
  copy.load(empty);
  EXPECT_EQ(copy.bytes(), 0u);
  EXPECT_THAT(error_of([&] { QueryMoments(1 << 30, 6, {}).load(cut); }),
              testing::HasSubstr("cannot be in 100 bytes"));
  std::vector<std::byte> damaged = out.bytes;
  std::ranges::fill(std::span(damaged).subspan(16, 8), std::byte{0xff});
  ByteReader bad(damaged);
  EXPECT_THAT(error_of([&] { copy.load(bad); }), testing::HasSubstr("not numbers"));
}

}  // namespace
}  // namespace ballast::test
