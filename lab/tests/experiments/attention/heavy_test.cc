#include "experiments/attention/heavy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "experiments/attention/norms.h"
#include "experiments/data/kv_file.h"
#include "experiments/kv_files.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using Part = KvSource::Part;
constexpr std::size_t kTokens = 41, kHeads = 4, kKvHeads = 2, kDim = 6;

class SmallFile : public ::testing::Test {
 protected:
  SmallFile() {
    test::write_tensors(dir_ / "x", test::layer(kHeads, kKvHeads, kTokens, kDim));
    file_.emplace(dir_ / "x");
  }
  Matrix read(Part part, std::size_t head) const { return file_->read(part, 0, head, 0, kTokens); }
  /// Softmax weights of one query head, row by row, in float64.
  std::vector<std::vector<double>> weights(std::size_t head) const {
    const Matrix q = read(Part::query, head), k = read(Part::key, head / (kHeads / kKvHeads));
    std::vector<std::vector<double>> out;
    for (std::size_t t = 0; t < kTokens; ++t) {
      std::vector<double> row;
      for (std::size_t i = 0; i <= t; ++i) {
        double dot = 0;
        for (std::size_t c = 0; c < kDim; ++c) dot += double{q[t][c]} * k[i][c];
        row.push_back(std::exp(dot / std::sqrt(double{kDim})));
      }
      const double sum = std::accumulate(row.begin(), row.end(), 0.0);
      for (double& x : row) x /= sum;
      out.push_back(std::move(row));
    }
    return out;
  }

  TempDir dir_;
  std::optional<KvFile> file_;
};

TEST_F(SmallFile, HeavyAgreesWithTheNaiveSums) {
  const std::size_t both[] = {0, 1};
  const HeavyStats found = measure_heavy(*file_, 0, both, 1000);
  double sparsity = 0;
  std::vector<std::vector<double>> attention_sum(kKvHeads, std::vector<double>(kTokens, 0.0));
  for (std::size_t h = 0; h < kHeads; ++h) {
    std::size_t small = 0, all = 0;
    for (const auto& row : weights(h)) {
      const double largest = *std::ranges::max_element(row);
      for (std::size_t i = 0; i < row.size(); ++i) {
        small += row[i] < 0.01 * largest;
        ++all;
        attention_sum[h / 2][i] += row[i];
      }
    }
    sparsity += static_cast<double>(small) / static_cast<double>(all) / kHeads;
  }
  EXPECT_GT(sparsity, 0);
  EXPECT_NEAR(found.sparsity, sparsity, 1e-9);
  double top20 = 0, first = 0, fourth = 0;
  for (auto& of_head : attention_sum) {
    std::ranges::sort(of_head, std::greater<>());
    const double sum = std::accumulate(of_head.begin(), of_head.end(), 0.0);
    top20 += std::accumulate(of_head.begin(), of_head.begin() + 8, 0.0) / sum / kKvHeads;  // 0.2·41
    first += of_head[0] / sum / kKvHeads;
    fourth += of_head[3] / sum / kKvHeads;
  }
  EXPECT_NEAR(found.top[3], top20, 1e-5);
  EXPECT_NEAR(found.top[0], first, 1e-5);  // of so few tokens one
  ASSERT_EQ(found.ranks, (std::vector<std::size_t>{1, 2, 4, 8, 16, 32}));
  EXPECT_NEAR(found.scores[2], fourth, 1e-5);
  EXPECT_LT(found.slope, 0);

  // Some rows only: the last is always one of them.
  const HeavyStats one = measure_heavy(*file_, 0, std::span(both).first(1), 1);
  const auto last = weights(0).back();
  const double limit = 0.01 * *std::ranges::max_element(last);
  const auto other = weights(1).back();
  const double other_limit = 0.01 * *std::ranges::max_element(other);
  const auto small = std::ranges::count_if(last, [&](double x) { return x < limit; }) +
                     std::ranges::count_if(other, [&](double x) { return x < other_limit; });
  EXPECT_NEAR(one.sparsity, static_cast<double>(small) / (2.0 * kTokens), 1e-9);
  EXPECT_EQ(error_of([&] { measure_heavy(*file_, 0, both, 0); }), "--queries must be at least 1");
}

TEST_F(SmallFile, NormsAgreeWithTheNaiveSums) {
  const std::size_t second[] = {1};
  const KvNorms found = measure_norms(*file_, 0, second);
  const Matrix keys = read(Part::key, 1);
  std::vector<double> mean(kDim, 0.0), lengths;
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t c = 0; c < kDim; ++c) mean[c] += double{keys[t][c]} / kTokens;
  }
  for (std::size_t t = 0; t < kTokens; ++t) {
    double squares = 0;
    for (std::size_t c = 0; c < kDim; ++c) squares += std::pow(keys[t][c] - mean[c], 2);
    lengths.push_back(std::sqrt(squares));
  }
  const double average = std::accumulate(lengths.begin(), lengths.end(), 0.0) / kTokens;
  double variance = 0;
  for (double x : lengths) variance += (x - average) * (x - average) / kTokens;
  EXPECT_NEAR(found.shifted.moments().mean, average, 1e-9);
  EXPECT_NEAR(found.shifted.confidence(), 1.96 * std::sqrt(variance / kTokens), 1e-9);
  EXPECT_EQ(found.shifted.moments().largest, *std::ranges::max_element(lengths));
  EXPECT_EQ(found.query.count, 2 * kTokens);  // both query heads of the group
  EXPECT_EQ(found.value.count, kTokens);
  EXPECT_GT(found.key.moments().mean, found.shifted.moments().mean);
  EXPECT_EQ(MomentSums().confidence(), 0);
}

/// What H2O keeps, one set of tokens after another, from the definition.
double naive_h2o(const std::vector<std::vector<double>>& rows, std::size_t keep, bool global) {
  std::vector<double> total(rows.size(), 0.0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) total[i] += row[i];
  }
  std::vector<std::pair<std::size_t, double>> cache;  // token, score
  double share = 0, queries = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    cache.emplace_back(t, 0.0);
    double mass = 0;
    for (const auto& entry : cache) mass += rows[t][entry.first];
    for (auto& entry : cache) {
      entry.second = global ? total[entry.first] : entry.second + rows[t][entry.first] / mass;
    }
    if (t >= keep) {
      share += mass;
      ++queries;
    }
    if (cache.size() > keep) {
      // The newest keep / 2 stay.
      auto least = cache.begin();
      for (auto it = cache.begin(); it != cache.end() && it->first + keep / 2 <= t; ++it) {
        if (it->second < least->second) least = it;
      }
      cache.erase(least);
    }
  }
  return share / queries;
}

TEST_F(SmallFile, KeptAttentionIsThatOfTheNaiveCaches) {
  for (std::size_t keep : {1, 2, 7, 12}) {
    const auto rows = weights(1);
    const KeptAttention found = kept_attention(rows, keep);
    double local = 0;
    for (std::size_t t = keep; t < kTokens; ++t) {
      for (std::size_t i = t - keep; i <= t; ++i) local += rows[t][i] / double(kTokens - keep);
    }
    EXPECT_NEAR(found.local, local, 1e-12);
    EXPECT_NEAR(found.h2o, naive_h2o(rows, keep, false), 1e-12);
    EXPECT_NEAR(found.global, naive_h2o(rows, keep, true), 1e-12);
  }
  EXPECT_EQ(kept_attention(weights(0), kTokens).h2o, 1);
  EXPECT_EQ(kept_attention({}, 3).local, 1);
  const std::size_t one[] = {1};
  const HeavyStats stats = measure_heavy(*file_, 0, one, 10, {}, 0.25);
  EXPECT_GT(stats.local, 0);
  EXPECT_LE(stats.global, 1);
}

TEST(WordHeaviness, IsThatOfAHandCountedText) {
  // Word 5 stands between all others.
  const std::vector<std::int32_t> words = {5, 1, 5, 2, 5, 3, 5, 4};
  const std::vector<double> attention = {0.2, 0.05, 0.2, 0.04, 0.2, 0.03, 0.2, 0.02};
  const WordHeaviness found = word_heaviness(words, attention, 1);
  EXPECT_EQ(found.words, 5u);
  // Co-occurrences 7, 2, 2, 2, 1 and attention 0.8, 0.05, 0.04, 0.03, 0.02: ranks 4, 2, 2, 2, 0
  // and 4, 3, 2, 1, 0.
  EXPECT_NEAR(found.correlation, 8 / std::sqrt(8.0 * 10.0), 1e-12);
  // Word 5 alone stands there more than once, ranks 4, 1.5, 1.5, 1.5, 1.5: 5 / sqrt(10 * 5) with
  // attention and 5 / sqrt(8 * 5) with co-occurrences.
  const double counts = 5 / std::sqrt(50.0), times = 5 / std::sqrt(40.0);
  EXPECT_NEAR(
      found.partial_correlation,
      (found.correlation - counts * times) / std::sqrt((1 - counts * counts) * (1 - times * times)),
      1e-12);
  EXPECT_LT(found.slope, 0);
  EXPECT_EQ(word_heaviness({}, {}).words, 0u);
  EXPECT_EQ(word_heaviness(std::vector<std::int32_t>{1}, std::vector<double>{1}).correlation, 0);
}

/// One head of dimension 1, all zeros.
class LongSource : public KvSource {
 public:
  explicit LongSource(std::size_t tokens) {
    shape_ = {
        .layers = 1, .heads = 1, .kv_heads = 1, .tokens = tokens, .key_dim = 1, .value_dim = 1};
    name_ = "long";
  }
  using KvSource::read;
  void read(Part, std::size_t, std::size_t, std::size_t, MutableMatrix out) const override {
    for (std::size_t i = 0; i < out.rows; ++i) out[i][0] = 0;
  }
};

TEST(Heavy, RefusesTextsWhoseSquareIsTooMuch) {
  const std::size_t head[] = {0};
  try {
    measure_heavy(LongSource(HeavyStats::kMostTokens + 1), 0, head, 1);
    FAIL() << "131,073 tokens were read";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "long: 131073 tokens, at most 131072 here: accumulated attention takes the square "
                 "of them; capture a shorter text (capture --tokens)");
  }
  EXPECT_EQ(measure_heavy(LongSource(2000), 0, head, 1).of_token.size(), 2000u);
}

}  // namespace
}  // namespace ballast
