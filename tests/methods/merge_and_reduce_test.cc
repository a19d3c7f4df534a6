#include "methods/merge_and_reduce.h"

#include <bit>
#include <optional>

#include "ballast/random.h"
#include "methods/balance_support.h"
#include "methods/kernels/balance.h"

namespace ballast::test {
namespace {

EntryStore store_for(const Tokens& tokens, std::size_t capacity) {
  SummarySetup setup;
  setup.key_dim = tokens.keys.cols();
  setup.value_dim = tokens.values.cols();
  return EntryStore(setup, capacity);
}

BalanceOptions options_for(const Tokens& tokens, std::uint64_t seed, bool theory) {
  BalanceOptions options;
  options.mode = theory ? BalanceOptions::Mode::theory : BalanceOptions::Mode::practical;
  options.scale = 1.0 / std::sqrt(static_cast<double>(tokens.keys.cols()));
  options.random = {seed, 0, 0};
  return options;
}

double weight_sum(const MergeAndReduce& levels) {
  double sum = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    sum += std::exp(double{levels.store().log_weight(i)});
  }
  return sum;
}

/// The paper's walk, the class that stays drawn by a fair coin: an unbiased halving. The paper's
/// own choice, the smaller class, is not: its weights add up to less than n.
class FairClass : public HalvingRule {
 public:
  FairClass(double scale, std::uint64_t seed) : scale_(scale), key_{seed, 0, 0} {}
  void reduce(WeightedTokens& tokens, std::size_t, std::uint32_t round,
              std::span<std::uint8_t> dropped) override {
    kernels::BalanceBlock block;
    const std::size_t n = tokens.size();
    block.resize(n, tokens.keys.dim, tokens.values.dim);
    const std::vector<float> ones(16, 1.0f);
    for (std::size_t first = 0; first < n; first += 16) {
      const std::size_t count = std::min<std::size_t>(16, n - first);
      std::vector<std::vector<float>> rows;
      std::vector<const float*> keys, values;
      rows.reserve(32);
      for (std::size_t i = first; i < first + count; ++i) {
        for (const RowsView* from : {&tokens.keys, &tokens.values}) {
          rows.emplace_back(from->dim);
          from->decode(tokens.rows[i], rows.back());
          (from == &tokens.keys ? keys : values).push_back(rows.back().data());
        }
      }
      block.set_group(first / 16, keys, values, std::span(ones).first(count));
    }
    kernels::SignRule rule;
    rule.scale = static_cast<float>(scale_);
    rule.gain = 1 / (2 * 30 * std::log(static_cast<double>(n) / 0.01));
    rule.gain /= block.largest_value_square();
    rule.shift = block.largest_key_square() * scale_;
    rule.key = key_;
    rule.round = round;
    block.walk(rule, tokens.positions);
    const auto coin = random_bits(key_, static_cast<std::uint64_t>(tokens.positions[0]), 99, round);
    const float kept = coin[0] % 2 == 0 ? 1.0f : -1.0f;
    for (std::size_t i = 0; i < n; ++i) {
      dropped[i] = block.signs()[i] == kept ? 0 : 1;
      tokens.log_weights[i] += std::log(2.0f);
      tokens.log_normalisers[i] += std::log(2.0f);
    }
  }

 private:
  double scale_;
  RandomKey key_;
};

TEST(MergeAndReduce, StrictLevelsAreTheBinaryNumberOfBatches) {
  const std::size_t t = 10, levels = 6, n = 700;
  const Tokens data = random_tokens(n, 4, 3, 1);
  for (bool theory : {false, true}) {
    SoftmaxBalance rule(options_for(data, 1, theory));
    MergeAndReduce mr(store_for(data, t * (levels + 1)), {t, levels});
    const Block block = data.block(0, n);
    for (std::size_t j = 1; j <= n && j < (t << levels); ++j) {
      mr.push(block, j - 1, rule);
      const std::size_t p = j / t;
      ASSERT_EQ(mr.level_size(0), j % t) << j;
      for (std::size_t i = 1; i < levels; ++i) {
        const std::size_t size = mr.level_size(static_cast<int>(i));
        ASSERT_LE(size, t);
        const bool bit = ((p >> (i - 1)) & 1) != 0;
        if (theory) {
          ASSERT_TRUE(bit || size == 0) << "token " << j << ", level " << i;
        } else {
          ASSERT_EQ(size, bit ? t / 2 : 0) << "token " << j << ", level " << i;
        }
      }
      if (!theory) {
        ASSERT_NEAR(weight_sum(mr), static_cast<double>(j), 1e-4 * static_cast<double>(j));
      }
    }
  }
}

TEST(MergeAndReduce, StrictLevelsStayTheBinaryNumberAfterAMerge) {
  const std::size_t t = 10, levels = 6, n = 500;
  const Tokens data = random_tokens(n, 4, 3, 2);
  const Block block = data.block(0, n);
  SoftmaxBalance rule(options_for(data, 1, false));
  MergeAndReduce a(store_for(data, t * (levels + 1)), {t, levels}),
      b(store_for(data, t * (levels + 1)), {t, levels});
  for (std::size_t i = 0; i < 130; ++i) a.push(block, i, rule);
  for (std::size_t i = 130; i < 220; ++i) b.push(block, i, rule);
  a.merge(b, rule);
  for (std::size_t j = 220; j <= n; ++j) {
    if (j > 220) a.push(block, j - 1, rule);
    ASSERT_EQ(a.level_size(0), j % t) << j;
    for (std::size_t i = 1; i < levels; ++i) {
      const bool bit = ((j / t >> (i - 1)) & 1) != 0;
      ASSERT_EQ(a.level_size(static_cast<int>(i)), bit ? t / 2 : 0) << j << ", level " << i;
    }
  }
}

// The recursion of Theorem 3.4's proof: batches of t are halved each on its own, two outputs make a
// batch of the next level, and an odd one out stays in its level.
std::vector<std::vector<Position>> offline(const Tokens& data, std::size_t n, std::size_t t,
                                           SoftmaxBalance& rule) {
  const WeightedTokens all = data.weighted();
  std::vector<std::vector<Position>> batches, left(1);
  for (std::size_t first = 0; first + t <= n; first += t) {
    batches.emplace_back(all.positions.begin() + static_cast<std::ptrdiff_t>(first),
                         all.positions.begin() + static_cast<std::ptrdiff_t>(first + t));
  }
  for (std::uint32_t level = 0; !batches.empty(); ++level) {
    std::vector<std::vector<Position>> halved;
    for (const auto& batch : batches) {
      WeightedTokens tokens;
      tokens.keys = all.keys;
      tokens.values = all.values;
      for (Position p : batch) tokens.add(static_cast<std::uint32_t>(p), p, 0.0f, 0.0f);
      std::vector<std::uint8_t> dropped(batch.size());
      rule.reduce(tokens, (batch.size() + 1) / 2, level, dropped);
      halved.emplace_back();
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (dropped[i] == 0) halved.back().push_back(batch[i]);
      }
    }
    left.emplace_back();
    if (halved.size() % 2 != 0) {
      left.back() = halved.back();
      halved.pop_back();
    }
    batches.clear();
    for (std::size_t i = 0; i < halved.size(); i += 2) {
      batches.push_back(halved[i]);
      batches.back().insert(batches.back().end(), halved[i + 1].begin(), halved[i + 1].end());
    }
  }
  return left;
}

TEST(MergeAndReduce, IsTheRecursionOfTheTheoremsProof) {
  const std::size_t t = 12, levels = 7;
  const Tokens data = random_tokens(t << 6, 5, 3, 8, 0.7f);
  SoftmaxBalance online(options_for(data, 4, true)), whole(options_for(data, 4, true));
  MergeAndReduce mr(store_for(data, 2 * t * (levels + 1)), {t, levels});
  const Block block = data.block(0, data.size());
  for (std::size_t j = 1; j <= data.size(); ++j) {
    mr.push(block, j - 1, online);
    if (j % t != 0 || (j / t) % 5 > 1) continue;
    const auto expected = offline(data, j, t, whole);
    for (std::size_t level = 0; level < expected.size(); ++level) {
      ASSERT_EQ(mr.level_size(static_cast<int>(level)), expected[level].size())
          << "token " << j << ", level " << level;
      for (Position p : expected[level]) {
        const auto found = std::ranges::find(mr.store().positions(), p);
        ASSERT_NE(found, mr.store().positions().end()) << p;
        const auto slot = static_cast<std::size_t>(found - mr.store().positions().begin());
        ASSERT_NEAR(mr.store().log_weight(slot), std::log(2.0) * static_cast<double>(level), 1e-5);
      }
    }
  }
  EXPECT_EQ(mr.overflows(), 0u);
}

TEST(MergeAndReduce, LazyNeverExceedsItsRoomAndKeepsTheWeight) {
  const Tokens data = random_tokens(3000, 4, 3, 2);
  for (std::size_t capacity : {0, 1, 2, 3, 5, 8, 31, 100, 1000, 4000}) {
    SoftmaxBalance rule(options_for(data, 1, false));
    MergeAndReduce mr(store_for(data, capacity), {});
    const Block block = data.block(0, 3000);
    const std::size_t bytes = mr.bytes();
    for (std::size_t j = 0; j < 3000; ++j) {
      mr.push(block, j, rule);
      ASSERT_LE(mr.size(), capacity);
      ASSERT_GE(2 * mr.size(), std::min(capacity, j + 1));
    }
    EXPECT_EQ(mr.bytes(), bytes);
    EXPECT_EQ(mr.tokens(), 3000u);
    if (capacity >= 4000) {
      EXPECT_EQ(mr.size(), 3000u);
    }
    if (capacity > 0) {
      EXPECT_NEAR(weight_sum(mr), 3000, 0.5) << capacity;
    }
  }
}

TEST(MergeAndReduce, NumeratorAndNormaliserAreUnbiasedWithTheFairClass) {
  const std::size_t n = 200;
  const Tokens data = random_tokens(n, 3, 2, 3, 0.8f);
  const Matrix query = random_matrix(1, 3, 4);
  const double scale = 1 / std::sqrt(3.0);
  double exact[3] = {};
  for (std::size_t i = 0; i < n; ++i) {
    const double e = factor(data.keys[i], query[0], scale);
    exact[0] += e * data.values[i][0];
    exact[1] += e * data.values[i][1];
    exact[2] += e;
  }
  std::vector<double> estimates[3];
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    FairClass rule(scale, seed);
    MergeAndReduce mr(store_for(data, 200), {20, 4});
    const Block block = data.block(0, n);
    for (std::size_t i = 0; i < n; ++i) mr.push(block, i, rule);
    double sum[3] = {};
    std::vector<float> key(3), value(2);
    for (std::size_t i = 0; i < mr.size(); ++i) {
      mr.store().keys().decode(i, key);
      mr.store().values().decode(i, value);
      const double e = std::exp(mr.store().log_weight(i)) * factor(key, query[0], scale);
      sum[0] += e * value[0];
      sum[1] += e * value[1];
      sum[2] += e;
    }
    for (int c = 0; c < 3; ++c) estimates[c].push_back(sum[c]);
  }
  for (int c = 0; c < 3; ++c) {
    EXPECT_LT(std::abs(t_statistic(estimates[c], exact[c])), kMillionth) << c;
    // It has power: a bias of a third of the deviation between seeds would show.
    double square = 0;
    for (double x : estimates[c]) square += (x - exact[c]) * (x - exact[c]) / 600;
    EXPECT_GT(std::abs(t_statistic(estimates[c], exact[c] + std::sqrt(square) / 3)), kMillionth);
  }
}

TEST(MergeAndReduce, MergingIsLikeReadingOneAfterTheOther) {
  const std::size_t n = 400;
  const Tokens data = random_tokens(n, 3, 2, 5, 0.8f);
  const Matrix query = random_matrix(1, 3, 6);
  const double scale = 1 / std::sqrt(3.0);
  auto estimate = [&](const MergeAndReduce& mr) {
    double sum = 0;
    std::vector<float> key(3), value(2);
    for (std::size_t i = 0; i < mr.size(); ++i) {
      mr.store().keys().decode(i, key);
      mr.store().values().decode(i, value);
      sum += std::exp(mr.store().log_weight(i)) * factor(key, query[0], scale) * value[0];
    }
    return sum;
  };
  std::vector<double> merged, whole;
  const Block block = data.block(0, n);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    BalanceOptions options = options_for(data, seed, true);
    SoftmaxBalance rule(options);
    MergeAndReduce a(store_for(data, 120), {20, 5}), b(store_for(data, 120), {20, 5}),
        c(store_for(data, 120), {20, 5});
    for (std::size_t i = 0; i < n / 2; ++i) a.push(block, i, rule);
    for (std::size_t i = n / 2; i < n; ++i) b.push(block, i, rule);
    a.merge(b, rule);
    EXPECT_EQ(a.tokens(), n);
    for (int level = 0; level < 5; ++level) EXPECT_LE(a.level_size(level), 20u);
    merged.push_back(estimate(a));
    // Draws of its own, so that the two samples are independent.
    options.random.seed += 100000;
    SoftmaxBalance other(options);
    for (std::size_t i = 0; i < n; ++i) c.push(block, i, other);
    whole.push_back(estimate(c));
  }
  auto moments = [](const std::vector<double>& x) {
    double mean = 0, square = 0;
    for (double v : x) mean += v / static_cast<double>(x.size());
    for (double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size() - 1);
    return std::pair(mean, square);
  };
  const auto [mean_a, variance_a] = moments(merged);
  const auto [mean_b, variance_b] = moments(whole);
  const double t = (mean_a - mean_b) / std::sqrt((variance_a + variance_b) / 300);
  EXPECT_LT(std::abs(t), kMillionth);
  // The ratio of two such variances strays beyond these with probability below 1e-6.
  EXPECT_LT(variance_a / variance_b, 1.8);
  EXPECT_GT(variance_a / variance_b, 1 / 1.8);
}

TEST(MergeAndReduce, MergeFitsTheRoomAndKeepsTheWeight) {
  const Tokens data = random_tokens(1000, 4, 3, 7);
  const Block block = data.block(0, 1000);
  for (std::size_t capacity : {1, 2, 10, 64, 300}) {
    SoftmaxBalance rule(options_for(data, 1, false));
    MergeAndReduce a(store_for(data, capacity), {}), b(store_for(data, capacity), {});
    for (std::size_t i = 0; i < 600; ++i) a.push(block, i, rule);
    for (std::size_t i = 600; i < 1000; ++i) b.push(block, i, rule);
    a.merge(b, rule);
    EXPECT_LE(a.size(), capacity);
    EXPECT_EQ(a.tokens(), 1000u);
    if (capacity > 2) {
      EXPECT_NEAR(weight_sum(a), 1000, 0.1) << capacity;
    }
  }
}

TEST(MergeAndReduce, GroupsAreNeverMixed) {
  const Tokens data = random_tokens(2000, 4, 3, 8);
  const Block block = data.block(0, 2000);
  SoftmaxBalance rule(options_for(data, 1, false));
  MergeAndReduce mr(store_for(data, 200), {});
  double in_group[3] = {};
  for (std::size_t i = 0; i < 2000; ++i) {
    const int group = static_cast<int>(i * 7919 % 2000 % 3) - 1;
    in_group[group + 1] += 1;
    mr.push(block, i, rule, group);
  }
  double weight[3] = {};
  for (std::size_t i = 0; i < mr.size(); ++i) {
    const auto at = static_cast<std::size_t>(mr.store().position(i));
    weight[at * 7919 % 2000 % 3] += std::exp(mr.store().log_weight(i));
  }
  for (int g = 0; g < 3; ++g) EXPECT_NEAR(weight[g], in_group[g], 0.1);
  EXPECT_GT(mr.erase_groups_to(0), 0u);
  for (std::size_t i = 0; i < mr.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(mr.store().position(i)) * 7919 % 2000 % 3, 2u);
  }
}

/// Drops every other token, whatever it is.
class EveryOther : public HalvingRule {
 public:
  void reduce(WeightedTokens& tokens, std::size_t, std::uint32_t,
              std::span<std::uint8_t> dropped) override {
    for (std::size_t i = 0; i < tokens.size(); ++i) dropped[i] = i % 2;
  }
};

/// The lazy schedule with EveryOther, by counting each run anew for each entry.
struct LazyReference {
  struct Entry {
    int group, level;
    Position position;
    bool same_run(const Entry& e) const { return e.group == group && e.level == level; }
  };
  std::size_t capacity;
  std::vector<Entry> entries;

  void erase(std::size_t slot) {
    entries[slot] = entries.back();
    entries.pop_back();
  }
  std::size_t size_of(const Entry& e) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(entries, [&](const Entry& o) { return o.same_run(e); }));
  }
  void make_room() {
    std::vector<std::pair<Entry, std::size_t>> runs;
    int top = -1000;
    for (const Entry& e : entries) {
      if (std::ranges::any_of(runs, [&](const auto& run) { return run.first.same_run(e); }))
        continue;
      runs.push_back({e, size_of(e)});
      if (16 * runs.back().second >= entries.size()) top = std::max(top, e.group + e.level);
    }
    const double least = std::min(32.0, double(capacity) / double(4 * runs.size()));
    const auto batch_of = [&](const Entry& e) {
      const double below = std::max(0, top - e.group - e.level);
      return std::size_t(std::max({2.0, least, double(capacity) / 8 * std::exp2(-below / 2)})) / 2 *
             2;
    };
    std::optional<Entry> best;
    std::pair<Entry, std::size_t> largest = runs[0];
    for (const auto& run : runs) {
      if (run.second > largest.second) largest = run;
      if (run.second < batch_of(run.first)) continue;
      if (!best || run.first.group + run.first.level < best->group + best->level) best = run.first;
    }
    if (!best) best = largest.first;
    if (size_of(*best) < 2) return;
    std::vector<Position> oldest;
    for (const Entry& e : entries) {
      if (e.same_run(*best)) oldest.push_back(e.position);
    }
    std::ranges::sort(oldest);
    oldest.resize(std::min(oldest.size(), batch_of(*best)));
    for (std::size_t slot = entries.size(); slot-- > 0;) {
      const auto at = std::ranges::find(oldest, entries[slot].position) - oldest.begin();
      if (at == std::ssize(oldest)) continue;
      if (at % 2 == 0) {
        ++entries[slot].level;
      } else {
        erase(slot);
      }
    }
  }
  void push(Position position, int group) {
    if (entries.size() == capacity) make_room();
    if (entries.size() == capacity) {
      const auto least =
          std::ranges::min_element(entries, {}, [](const Entry& e) { return e.group + e.level; });
      erase(static_cast<std::size_t>(least - entries.begin()));
    }
    entries.push_back({group, 0, position});
  }
};

// More groups than a search goes through, each with few entries or one.
TEST(MergeAndReduce, ManyGroupsAreReducedAsAFewAre) {
  const std::size_t tokens = 1500;
  const Tokens data = random_tokens(tokens, 2, 2, 8);
  const Block block = data.block(0, tokens);
  for (int groups : {3, 60, 64, 65, 100, 300}) {
    for (std::size_t capacity : {90u, 200u, 400u}) {
      EveryOther rule;
      MergeAndReduce mr(store_for(data, capacity), {});
      LazyReference want{capacity, {}};
      for (std::size_t t = 0; t < tokens; ++t) {
        const int group = static_cast<int>(t * 7919 % 2003) % groups - groups / 2;
        mr.push(block, t, rule, group);
        want.push(static_cast<Position>(t), group);
      }
      ASSERT_EQ(mr.size(), want.entries.size()) << groups << " groups, room for " << capacity;
      for (std::size_t slot = 0; slot < mr.size(); ++slot)
        ASSERT_EQ(mr.store().position(slot), want.entries[slot].position) << groups;
    }
  }
}

}  // namespace
}  // namespace ballast::test
