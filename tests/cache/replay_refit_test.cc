// refit=values: values kept are fitted to the queries of the replay pass.
#include <fmt/format.h>

#include "ballast/error.h"
#include "ballast/scoring.h"
#include "cache/replay_reading.h"
#include "methods/refit.h"

namespace ballast::test {
namespace {

/// Solves A x = b by elimination with the largest pivot.
std::vector<double> solved(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r) {
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    }
    std::swap(a[c], a[pivot]);
    std::swap(b[c], b[pivot]);
    for (std::size_t r = c + 1; r < n; ++r) {
      const double f = a[r][c] / a[c][c];
      for (std::size_t k = c; k < n; ++k) a[r][k] -= f * a[c][k];
      b[r] -= f * b[c];
    }
  }
  for (std::size_t c = n; c-- > 0;) {
    for (std::size_t k = c + 1; k < n; ++k) b[c] -= a[c][k] * b[k];
    b[c] /= a[c][c];
  }
  return b;
}

// The formula in float64, from the normal equations. The text is so short that every
// query of the reading counts.
TEST(Replay, FittedValuesFollowTheFormula) {
  const Reading r;
  for (const char* bytes : {"0.2", "0.5"}) {
    const std::string method = fmt::format("replay:bytes={},sink=1,window=2,tiers=f32", bytes);
    const Cache plain = r.compressed(method), fitted = r.compressed(method + ",refit=values");
    for (std::size_t l = 0; l < 2; ++l) {
      for (std::size_t h = 0; h < 2; ++h) {
        const Segment before = plain.segments(l, h)[0], after = fitted.segments(l, h)[0];
        const std::vector<KeptEntry> entries = plain.kept(l, h);
        const std::size_t kept = before.keys.rows;
        ASSERT_EQ(after.keys.rows, kept);
        std::vector<std::vector<double>> x, y;
        for (std::size_t g = 0; g < 2; ++g) {
          for (std::size_t i = 0; i < 2 * kAgain; ++i) {
            const auto logit = [&](const Matrix& keys, std::size_t j) {
              double dot = 0;
              for (std::size_t c = 0; c < 16; ++c) {
                dot += double{r.again.queries[l][i][(2 * h + g) * 16 + c]} *
                       double{keys[j][h * 16 + c]};
              }
              return std::exp(0.25 * dot);
            };
            std::vector<double> e;
            double text = 0, own = 0, some = 0;
            for (std::size_t j = 0; j < kText; ++j)
              text += e.emplace_back(logit(r.text.keys[l], j));
            for (std::size_t j = i / kAgain * kAgain; j <= i; ++j) own += logit(r.again.keys[l], j);
            for (std::size_t a = 0; a < kept; ++a) {
              some += e[static_cast<std::size_t>(entries[a].position)];
            }
            const double w = text / (text + own);
            std::vector<double> row, answer(24, 0.0);
            for (std::size_t a = 0; a < kept; ++a) {
              row.push_back(w * e[static_cast<std::size_t>(entries[a].position)] / some);
            }
            for (std::size_t j = 0; j < kText; ++j) {
              for (std::size_t c = 0; c < 24; ++c) {
                answer[c] += w * e[j] / text * double{r.text.values[l][j][h * 24 + c]};
              }
            }
            x.push_back(row);
            y.push_back(answer);
          }
        }
        std::vector<std::vector<double>> normal(kept, std::vector<double>(kept, 0.0));
        double diagonal = 0;
        for (std::size_t a = 0; a < kept; ++a) {
          for (std::size_t b = 0; b < kept; ++b) {
            for (const auto& row : x) normal[a][b] += row[a] * row[b];
          }
          diagonal += normal[a][a];
        }
        const double pull = 0.3 * diagonal / static_cast<double>(kept);
        for (std::size_t c = 0; c < 24; ++c) {
          std::vector<double> right(kept, 0.0), old;
          std::vector<float> value(24);
          for (std::size_t a = 0; a < kept; ++a) {
            before.values.decode(a, value);
            old.push_back(double{value[c]});
          }
          for (std::size_t i = 0; i < x.size(); ++i) {
            double rest = y[i][c];
            for (std::size_t a = 0; a < kept; ++a) rest -= x[i][a] * old[a];
            for (std::size_t a = 0; a < kept; ++a) right[a] += x[i][a] * rest;
          }
          auto ridged = normal;
          for (std::size_t a = 0; a < kept; ++a) ridged[a][a] += pull;
          const std::vector<double> change = solved(ridged, right);
          for (std::size_t a = 0; a < kept; ++a) {
            after.values.decode(a, value);
            EXPECT_NEAR(double{value[c]}, old[a] + change[a], 1e-4) << l << h << a << " " << c;
          }
        }
      }
    }
  }
  Recording recording;
  const std::string bits = "replay:bytes=0.2,sink=1,window=2,refit=values";
  recording.include(Policy::parse(bits));
  CacheOptions exact;
  exact.recording = recording;
  Cache whole(r.text.shape, exact);
  feed(whole, r.text, 0, kText, 45);
  r.replay(whole);
  Cache fork = fork_of(whole, Policy::parse(bits), 0);
  fork.finish_prompt();
  Cache alone = r.compressed(bits);
  EXPECT_EQ(fork.bytes().used(), alone.bytes().used());
  EXPECT_TRUE(same_bits(feed(fork, r.again, 0, 20, 5), feed(alone, r.again, 0, 20, 7)));
  // Fitted values take the bits of those that were.
  const Cache plain = r.compressed("replay:bytes=0.2,sink=1,window=2");
  EXPECT_EQ(r.compressed(bits).bytes().used(), plain.bytes().used());
  for (const char* more : {",means=0.1", ",score=max"}) {
    CacheOptions options = replaying(bits + more);
    if (std::string_view(more) == ",score=max") options.protocol = Protocol::stream;
    options.expected_tokens = kText;
    EXPECT_THAT(error_of([&] { Cache(r.text.shape, options); }),
                testing::HasSubstr("refit=values"));
  }
}

TEST(Replay, LogitsOfFittedValuesHaveTheSoftCap) {
  EXPECT_FLOAT_EQ(logit_of(3.0f, {.scale = 0.5f}), 1.5f);
  EXPECT_NEAR(logit_of(3.0f, {.scale = 0.5f, .softcap = 2.0f}), 2 * std::tanh(0.75), 1e-6);
}

// Scores that come from a file bring no queries.
TEST(Replay, FittedValuesNeedAReading) {
  Cache cache = Reading().read("replay:bytes=0.2,refit=values");
  EXPECT_THAT(error_of([&] { scoring_of(cache).set_scores(0, 0, std::vector<float>(kText)); }),
              testing::HasSubstr("refit=values needs the queries of a replay pass"));
}

}  // namespace
}  // namespace ballast::test
