#include <map>

#include "ballast/testing/summary_contract.h"
#include "methods/ridge.h"

namespace ballast::test {
namespace {

TEST(AttentionMatching, Contract) {
  check_contract({.method = "attention-matching:budget=64", .any_chunking = false});
  check_contract(
      {.method = "attention-matching:budget=64,keys=omp", .any_chunking = false, .tokens = 500});
}

Columns random_columns(std::size_t rows, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::gamma_distribution<double> gamma(0.4, 1.0);
  Columns out(count, std::vector<double>(rows));
  for (std::vector<double>& column : out) {
    for (double& x : column) x = std::min(1.0, gamma(rng));
  }
  return out;
}

/// Minimises the same by elimination with pivots on the normal equations.
std::vector<double> eliminate(const Columns& a, std::vector<double> b, double ridge,
                              std::vector<double> start) {
  const std::size_t n = a.size(), m = b.size();
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) b[i] -= a[j][i] * start[j];
  }
  std::vector<std::vector<double>> system(n, std::vector<double>(n + 1));
  double diagonal = 0;
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t c = 0; c < n; ++c) system[r][c] += a[r][i] * a[c][i];
      system[r][n] += a[r][i] * b[i];
    }
    diagonal += system[r][r];
  }
  for (std::size_t r = 0; r < n; ++r) system[r][r] += ridge * diagonal / double(n);
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t best = c;
    for (std::size_t r = c; r < n; ++r) {
      if (std::abs(system[r][c]) > std::abs(system[best][c])) best = r;
    }
    std::swap(system[c], system[best]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double by = system[r][c] / system[c][c];
      for (std::size_t k = c; k <= n; ++k) system[r][k] -= by * system[c][k];
    }
  }
  for (std::size_t r = 0; r < n; ++r) start[r] += system[r][n] / system[r][r];
  return start;
}

TEST(Ridge, SolvesTheNormalEquations) {
  for (std::size_t rows : {1u, 2u, 7u, 30u}) {
    for (std::size_t count : {0u, 1u, 3u, 7u, 40u}) {
      for (double ridge : {0.01, 0.3, 5.0}) {
        const Columns a = random_columns(rows, count, rows + count);
        const Columns b = random_columns(rows, 1, 3);
        const std::vector<double> start(count, 0.7);
        const std::vector<double> got = RidgeSolver(a, ridge).solve(b[0], start);
        const std::vector<double> want = eliminate(a, b[0], ridge, start);
        for (std::size_t j = 0; j < count; ++j) ASSERT_NEAR(got[j], want[j], 1e-7);
      }
    }
  }
}

/// What the chosen entries' weighted columns lack of the totals.
double lack(const Columns& shares, const std::vector<double>& totals, const Chosen& chosen) {
  double square = 0;
  for (std::size_t i = 0; i < totals.size(); ++i) {
    double sum = totals[i];
    for (std::size_t a = 0; a < chosen.columns.size(); ++a)
      sum -= chosen.weights[a] * shares[chosen.columns[a]][i];
    square += sum * sum;
  }
  return square;
}

std::vector<double> totals_of(const Columns& shares, std::size_t rows) {
  std::vector<double> totals(rows);
  for (const std::vector<double>& column : shares) {
    for (std::size_t i = 0; i < rows; ++i) totals[i] += column[i];
  }
  return totals;
}

TEST(AttentionMatching, HighestAttentionFollowsTheFormula) {
  for (std::size_t rows : {1u, 9u, 40u}) {
    for (std::size_t n : {1u, 2u, 33u, 64u}) {
      for (std::size_t count : {0u, 1u, 5u, 33u}) {
        const Columns shares = random_columns(rows, n, rows * n + count);
        const std::vector<double> totals = totals_of(shares, rows);
        const Chosen got = highest(shares, totals, count, 0.3);
        std::vector<std::pair<double, std::size_t>> ranked;
        for (std::size_t j = 0; j < n; ++j) {
          double square = 0;
          for (std::size_t i = 0; i < rows; ++i)
            square += std::pow(shares[j][i] / totals[i], 2) / double(rows);
          ranked.push_back({std::sqrt(square), j});
        }
        std::ranges::sort(ranked, std::greater());
        ranked.resize(std::min(n, count));
        std::vector<std::size_t> want;
        Columns kept;
        for (const auto& each : ranked) want.push_back(each.second);
        std::ranges::sort(want);
        ASSERT_EQ(got.columns, want);
        for (std::size_t j : want) kept.push_back(shares[j]);
        // Least squares, clamped, cannot be beaten by weights of 1; two steps only improve on it.
        Chosen clamped = got;
        clamped.weights = eliminate(kept, totals, 0.3, std::vector<double>(want.size(), 1.0));
        for (double& w : clamped.weights) w = std::clamp(w, std::exp(-3.0), std::exp(3.0));
        EXPECT_LE(lack(shares, totals, got), lack(shares, totals, clamped) * (1 + 1e-9));
        for (double w : got.weights) {
          EXPECT_GE(w, std::exp(-3.0));
          EXPECT_LE(w, std::exp(3.0));
        }
      }
    }
  }
}

TEST(AttentionMatching, PursuitFollowsTheAlgorithm) {
  for (std::size_t rows : {1u, 9u, 40u}) {
    for (std::size_t n : {1u, 5u, 64u}) {
      for (std::size_t count : {0u, 1u, 4u, 7u, 30u, 64u}) {
        const Columns shares = random_columns(rows, n, rows * n);
        const std::vector<double> totals = totals_of(shares, rows);
        std::vector<double> left = totals;
        Columns kept;
        Chosen want;
        std::vector<bool> taken(n);
        for (int time = 1; want.columns.size() < std::min(n, count); ++time) {
          // Four times the column that matches best what was left before.
          for (int one = 0; one < 4 && want.columns.size() < std::min(n, count); ++one) {
            std::size_t best = n;
            double most = -HUGE_VAL;
            for (std::size_t j = 0; j < n; ++j) {
              double product = 0;
              for (std::size_t i = 0; i < rows; ++i) product += shares[j][i] * left[i];
              if (taken[j] || product < most) continue;
              most = product;
              best = j;
            }
            taken[best] = true;
            want.columns.push_back(best);
            kept.push_back(shares[best]);
          }
          if (time % 2 != 0 && want.columns.size() < std::min(n, count)) continue;
          want.weights = eliminate(kept, totals, 0.3, std::vector<double>(kept.size(), 1.0));
          left = totals;
          for (std::size_t a = 0; a < kept.size(); ++a) {
            want.weights[a] = std::clamp(want.weights[a], 1e-12, std::exp(7.0));
            for (std::size_t i = 0; i < rows; ++i) left[i] -= want.weights[a] * kept[a][i];
          }
        }
        std::map<std::size_t, double> weights;
        for (std::size_t a = 0; a < want.columns.size(); ++a) {
          if (want.weights[a] >= std::exp(-7.0)) weights[want.columns[a]] = want.weights[a];
        }
        const Chosen got = pursue(shares, totals, count, 0.3);
        ASSERT_EQ(got.columns.size(), weights.size()) << rows << " " << n << " " << count;
        std::size_t a = 0;
        for (const auto& [column, weight] : weights) {
          ASSERT_EQ(got.columns[a], column);
          ASSERT_NEAR(got.weights[a], weight, 1e-6 * (1 + weight));
          ++a;
        }
      }
    }
  }
}

// The answers to the observed queries, against the same by the naive formulas.
TEST(AttentionMatching, EntriesAnswerTheQueriesAsTheFormulasSay) {
  const std::size_t n = 60, dim = 6, m = 24;
  HeadStream stream = random_stream(n, dim, 2);
  const Matrix queries = random_matrix(m, dim, 9, 1.5f);
  const std::vector<Position> positions(m, 99);
  stream.asked = queries.view();
  stream.asked_at = positions;
  for (const char* method : {"attention-matching:budget=9,ridge=0.1",
                             "attention-matching:budget=9,keys=omp,ridge=0.1"}) {
    for (std::size_t capacity : {1u, 2u, 15u, 40u}) {
      Block block = stream.block(0, n);
      const SummarySetup setup = setup_of(method, capacity, dim, Protocol::prefill, n);
      auto summary = make_summary(setup);
      summary->absorb(block);
      // E, y and Y of all entries.
      Columns shares(n, std::vector<double>(m)), answers(dim, std::vector<double>(m));
      for (std::size_t i = 0; i < m; ++i) {
        double most = -HUGE_VAL, sum = 0;
        for (std::size_t j = 0; j < n; ++j) {
          double dot = 0;
          for (std::size_t c = 0; c < dim; ++c) dot += double{queries[i][c]} * stream.keys[j][c];
          shares[j][i] = dot * setup.logits.scale;
          most = std::max(most, shares[j][i]);
        }
        for (std::size_t j = 0; j < n; ++j) sum += shares[j][i] = std::exp(shares[j][i] - most);
        for (std::size_t j = 0; j < n; ++j) {
          for (std::size_t c = 0; c < dim; ++c)
            answers[c][i] += shares[j][i] / sum * stream.values[j][c];
        }
      }
      // X of the entries that were kept, with their weights.
      const std::vector<Segment> segments = segments_of(*summary);
      ASSERT_EQ(segments.size(), 1u);
      const Segment& s = segments[0];
      ASSERT_LE(s.keys.rows, capacity);
      Columns x(s.keys.rows, std::vector<double>(m));
      for (std::size_t i = 0; i < m; ++i) {
        double sum = 0;
        for (std::size_t a = 0; a < s.keys.rows; ++a)
          sum += x[a][i] =
              std::exp(double{s.log_weights[a]}) * shares[std::size_t(s.positions[a])][i];
        for (std::size_t a = 0; a < s.keys.rows; ++a) x[a][i] /= sum;
      }
      std::vector<float> row(dim);
      for (std::size_t c = 0; c < dim; ++c) {
        std::vector<double> start;
        for (std::size_t a = 0; a < s.keys.rows; ++a)
          start.push_back(stream.values[std::size_t(s.positions[a])][c]);
        const std::vector<double> want = eliminate(x, answers[c], 0.1, start);
        for (std::size_t a = 0; a < s.keys.rows; ++a) {
          s.values.decode(a, row);
          ASSERT_NEAR(row[c], want[a], 1e-4) << method << " " << capacity;
        }
      }
    }
  }
}

/// The error of a summary that takes in blocks of `sizes`, each with `rows` queries; empty: none.
std::string absorb_error(const std::string& method, std::size_t capacity, std::size_t rows,
                         std::initializer_list<std::size_t> sizes) {
  const std::size_t dim = 4;
  std::size_t tokens = 0;
  for (std::size_t size : sizes) tokens += size;
  HeadStream stream = random_stream(tokens, dim, 2);
  const Matrix queries = random_matrix(rows, dim, 9, 1.5f);
  const std::vector<Position> positions(rows, static_cast<Position>(tokens));
  stream.asked = queries.view();
  stream.asked_at = positions;
  const auto summary = make_summary(setup_of(method, capacity, dim, Protocol::stream, tokens));
  std::size_t done = 0;
  try {
    for (std::size_t size : sizes) {
      Block block = stream.block(done, size);
      summary->absorb(block);
      done += size;
    }
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(AttentionMatching, RefusesFitsThatTakeTooLong) {
  using testing::HasSubstr;
  const std::string wide = "attention-matching:budget=64,observe=20000";
  EXPECT_THAT(absorb_error(wide, 2000, 2000, {3000}),
              HasSubstr("2000 entries fitted to 2000 queries would take 16048 million "
                        "multiplications a KV head, more than 4295 million; give a smaller budget "
                        "or observe"));
  EXPECT_THAT(absorb_error("attention-matching:budget=64,keys=omp", 900, 512, {2000}),
              HasSubstr("give a smaller budget or observe, or keys=highest"));
  EXPECT_THAT(absorb_error(wide, 1, 20000, {30000}), HasSubstr("1 entries")) << "the logits alone";
  EXPECT_EQ(absorb_error(wide, 200, 200, {1000}), "");
  EXPECT_EQ(absorb_error(wide, 3000, 20000, {3000}), "") << "nothing is fitted";
  // By default the time grows with the entries alone.
  EXPECT_EQ(absorb_error("attention-matching:budget=64", 9000, 128, {20000}), "");
}

/// The error of making a summary that takes in `step` tokens at a time; empty: none.
std::string step_error(const std::string& method, std::size_t capacity, std::size_t step,
                       std::size_t queries_per_kv_head = 2) {
  SummarySetup setup = setup_of(method, capacity, 4, Protocol::stream, 9000);
  setup.step = step;
  setup.queries_per_kv_head = queries_per_kv_head;
  try {
    make_summary(setup);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return {};
}

// Before the first token: a step is taken in while other sequences go on.
TEST(AttentionMatching, RefusesStepsThatTakeTooLong) {
  using testing::HasSubstr;
  const std::string method = "attention-matching:budget=64";
  EXPECT_THAT(step_error(method, 200, 1),
              HasSubstr("a refit of 200 entries every 1 tokens is too slow; give step=32 or more"));
  EXPECT_THAT(step_error(method + ",observe=8", 200, 2, 32), HasSubstr("give step=16 or more"));
  EXPECT_THAT(step_error(method + ",observe=4000", 600, 5, 1), HasSubstr("give step=128 or more"));
  EXPECT_EQ(step_error(method, 200, 32), "");
  EXPECT_EQ(step_error(method, 20, 1), "") << "a small summary";
  EXPECT_EQ(step_error(method, 200, 0), "") << "one block";
  EXPECT_THAT(step_error(method + ",observe=20000", 2000, 128), HasSubstr("or observe"));
  EXPECT_THAT(step_error(method + ",keys=omp", 900, 128, 8), HasSubstr("or keys=highest"));
  // The step by default is a quarter of what sink and window leave, 128 at most.
  for (std::size_t left : {4u, 7u, 40u, 101u, 512u, 700u}) {
    const Budget budget = Policy::parse("attention-matching")
                              .with("budget", std::to_string(32 + left))
                              .budget(9000, Protocol::stream);
    for (const char* observe : {"", ",observe=600"})
      EXPECT_EQ(step_error(method + observe, budget.summary, budget.step), "") << left;
  }
}

}  // namespace
}  // namespace ballast::test
