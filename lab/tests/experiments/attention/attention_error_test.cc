#include "experiments/attention/attention_error.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ballast/threads.h"
#include "experiments/attention/head_attention.h"
#include "experiments/data/kv_file.h"
#include "experiments/data/synth.h"
#include "experiments/kv_files.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using Part = KvSource::Part;
using ::testing::HasSubstr;

SynthOptions tiny() {
  SynthOptions o;
  o.tokens = 90;
  o.layers = 2;
  o.heads = 4;
  o.kv_heads = 2;
  o.dim = 12;
  o.clusters = 5;
  o.query_norm = o.key_norm = 4;  // at so small a dimension, the papers' would be one-hot
  return o;
}

AttentionErrorOptions tiny_options(const std::string& method) {
  AttentionErrorOptions o;
  o.policies = {Policy::parse(method)};
  o.rates = {0.5};
  o.seeds = 2;
  o.sink = 6;
  o.window = 10;
  o.queries = 7;
  return o;
}

/// Mean over heads of the error when of the middle only the last `near` tokens are kept: everything
/// in float64, nothing shared with the experiment.
double naive_error(const Synth& source, std::size_t sink, std::size_t window, std::size_t queries,
                   std::size_t near) {
  const KvShape& s = source.shape();
  double sum = 0;
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      const Matrix keys = source.read(Part::key, l, h / s.group(), 0, s.tokens);
      const Matrix values = source.read(Part::value, l, h / s.group(), 0, s.tokens);
      const Matrix asked = source.read(Part::query, l, h, 0, s.tokens);
      double difference = 0, size = 0;
      for (std::size_t t = s.tokens - queries; t < s.tokens; ++t) {
        std::vector<test::PlainEntry> all, kept;
        for (std::size_t i = 0; i <= t; ++i) {
          test::PlainEntry e{{keys[i].begin(), keys[i].end()},
                             {values[i].begin(), values[i].end()}};
          all.push_back(e);
          if (i < sink || i >= s.tokens - window - near) kept.push_back(e);
        }
        const double scale = 1 / std::sqrt(static_cast<double>(s.key_dim));
        const auto z = test::naive_attention(all, asked[t], scale);
        const auto y = test::naive_attention(kept, asked[t], scale);
        for (std::size_t c = 0; c < z.size(); ++c) {
          difference += (y[c] - z[c]) * (y[c] - z[c]);
          size += z[c] * z[c];
        }
      }
      sum += std::sqrt(difference / size);
    }
  }
  return sum / static_cast<double>(s.layers * s.heads);
}

TEST(AttentionError, AgreesWithTheNaiveOne) {
  const Synth source(tiny());
  AttentionErrorOptions o = tiny_options("streaming-llm");
  o.rates = {0.5, 0.1};
  const AttentionErrors result = measure_attention_errors(source, o);
  EXPECT_EQ(result.middle, 74u);
  ASSERT_EQ(result.cells.size(), 2u);
  for (const AttentionErrorCell& cell : result.cells) {
    const auto near = static_cast<std::size_t>(std::llround(cell.entries));
    EXPECT_LE(near, static_cast<std::size_t>(std::llround(cell.rate * 74)));
    EXPECT_GE(near + 1, static_cast<std::size_t>(std::llround(cell.rate * 74)));
    const double expected = naive_error(source, 6, 10, 7, near);
    EXPECT_GT(expected, 0.01);
    EXPECT_NEAR(cell.error, expected, 1e-5);
    EXPECT_NEAR(cell.seed_deviation, 0, 1e-12);
    EXPECT_GT(cell.head_deviation, 0);
    EXPECT_GE(cell.worst, cell.error);
    EXPECT_NEAR((cell.layer_errors[0] + cell.layer_errors[1]) / 2, cell.error, 1e-12);
  }
}

TEST(AttentionError, KeepingEverythingLosesNothing) {
  const Synth source(tiny());
  for (const MethodInfo* info : methods()) {
    if (info->global_budget) continue;                                 // tests/cache/replay_test.cc
    if (!summarises_heads_alone(Policy::parse(info->name))) continue;  // refused, see below
    AttentionErrorOptions o = tiny_options(std::string(info->name));
    o.rates = {1};
    const AttentionErrors result = measure_attention_errors(source, o);
    ASSERT_EQ(result.cells.size(), 1u) << info->name;
    EXPECT_LT(result.cells[0].worst, 1e-5) << info->name;
    EXPECT_EQ(result.cells[0].entries, 74) << info->name;
  }
}

TEST(AttentionError, EveryMethodStaysWithinTheSameEntries) {
  const Synth source(tiny());
  for (const MethodInfo* info : methods()) {
    if (info->global_budget) continue;                                 // tests/cache/replay_test.cc
    if (!summarises_heads_alone(Policy::parse(info->name))) continue;  // refused, see below
    if (info->window_policy == WindowPolicy::all) continue;
    AttentionErrorOptions o = tiny_options(std::string(info->name));
    for (const AttentionErrorCell& cell : measure_attention_errors(source, o).cells) {
      // A pyramid gives the first layer more and the last less.
      EXPECT_LE(cell.entries, 37) << cell.method;
      EXPECT_GE(cell.entries, 12) << cell.method;
      EXPECT_GT(cell.error, 0) << cell.method;
      EXPECT_LT(cell.error, 2) << cell.method;
    }
  }
}

TEST(AttentionError, RefusesMethodsThatNeedMoreThanAttentionSums) {
  const Synth source(tiny());
  for (const char* method :
       {"dropkv:heads=uniform", "expected-attention:heads=uniform", "snapkv:heads=adaptive"}) {
    AttentionErrorOptions o = tiny_options(method);
    EXPECT_THAT(test::error_of([&] { measure_attention_errors(source, o); }),
                HasSubstr("ballast compress"))
        << method;
  }
}

TEST(AttentionError, ExactIsMeasuredOnce) {
  const Synth source(tiny());
  AttentionErrorOptions o = tiny_options("exact");
  o.rates = {0.5, 0.25};
  const AttentionErrors result = measure_attention_errors(source, o);
  ASSERT_EQ(result.cells.size(), 1u);
  EXPECT_EQ(result.cells[0].rate, 1);
  EXPECT_LT(result.cells[0].worst, 1e-5);
  EXPECT_EQ(result.cells[0].bytes, result.exact_bytes);
}

TEST(AttentionError, StorageTypesCostAccuracyAndSaveBytes) {
  const Synth source(tiny());
  AttentionErrorOptions o = tiny_options("exact");
  o.key_type = o.value_type = StorageType::int8;
  const AttentionErrors result = measure_attention_errors(source, o);
  EXPECT_GT(result.cells[0].error, 1e-5);
  EXPECT_LT(result.cells[0].error, 0.05);
  EXPECT_LT(result.cells[0].bytes, 0.6 * result.exact_bytes);
}

TEST(AttentionError, SameForAnyNumberOfThreads) {
  const Synth source(tiny());
  AttentionErrorOptions o = tiny_options("balancekv:block=8");
  o.seeds = 3;
  const int before = threads();
  std::vector<std::vector<double>> errors;
  for (int t : {1, 3}) {
    set_threads(t);
    const auto result = measure_attention_errors(source, o);
    errors.push_back({result.cells[0].error, result.cells[0].seed_deviation,
                      result.cells[0].head_deviation, result.cells[0].worst});
  }
  set_threads(before);
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_GT(errors[0][1], 0);
  o.first_seed = 1;
  EXPECT_NE(measure_attention_errors(source, o).cells[0].error, errors[0][0]);
}

TEST(AttentionError, SelectsLayersAndHeads) {
  const Synth source(tiny());
  AttentionErrorOptions o = tiny_options("streaming-llm");
  const double both = measure_attention_errors(source, o).cells[0].error;
  double sum = 0;
  for (std::size_t l = 0; l < 2; ++l) {
    for (std::size_t h = 0; h < 2; ++h) {
      o.layers = {l};
      o.kv_heads = {h};
      const auto result = measure_attention_errors(source, o);
      EXPECT_EQ(result.cells[0].layer_errors.size(), 1u);
      sum += result.cells[0].error / 4;
    }
  }
  EXPECT_NEAR(sum, both, 1e-9);
}

TEST(AttentionError, MassIsThatOfTheQueriesAskedFor) {
  const Synth source(tiny());
  const HeadAttention head(source, 0, 0);
  const auto attention_sum = head.attention_sum(0, 80);
  EXPECT_EQ(attention_sum.size(), 80u);
  double sum = 0;
  for (float m : attention_sum) sum += m;
  EXPECT_NEAR(sum, 80 * 2, 1e-3);  // each of 80 queries in two heads gives 1
  double last = 0;
  for (float m : head.attention_sum(79, 80)) last += m;
  EXPECT_NEAR(last, 2, 1e-5);
}

TEST(AttentionError, RefusesWhatCannotBe) {
  const Synth source(tiny());
  auto error = [&](const std::string& method, auto change) {
    AttentionErrorOptions o = tiny_options(method);
    change(o);
    return test::error_of([&] { measure_attention_errors(source, o); });
  };
  auto same = [](AttentionErrorOptions&) {};
  EXPECT_THAT(
      error("balancekv:rate=0.5", same),
      HasSubstr("method balancekv: the experiment sets memory, storage and sink; leave out rate="));
  EXPECT_THAT(error("balancekv:sink=4", same), HasSubstr("leave out sink="));
  EXPECT_THAT(error("balancekv:window=60", same), HasSubstr("budget=43 is smaller than"));
  EXPECT_THAT(error("exact", [](auto& o) { o.policies.clear(); }), HasSubstr("no method"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.rates = {0}; }), HasSubstr("--rates 0"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.rates = {1.5}; }), HasSubstr("--rates 1.5"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.rates = {NAN}; }), HasSubstr("--rates nan"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.rates.clear(); }), HasSubstr("no rate"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.seeds = 0; }),
              HasSubstr("--seeds must be at least 1"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.queries = 11; }),
              HasSubstr("11 queries: expected 1 to 10"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.window = 84; }),
              HasSubstr("90 tokens leave no middle between a sink of 6 and a window of 84"));
  EXPECT_THAT(error("balancekv", [](auto& o) { o.layers = {2}; }),
              HasSubstr("there is no layer 2"));
  EXPECT_THAT(error("balancekv",
                    [](auto& o) {
                      o.kv_heads = {0, 5};
                    }),
              HasSubstr("there is no KV head 5"));
}

TEST(RelativeErrors, PerHeadOfTheGroup) {
  Matrix a(4, 2), b(4, 2);
  for (std::size_t r = 0; r < 4; ++r) b[r][0] = 3, b[r][1] = 4;
  for (std::size_t r = 0; r < 4; ++r) a[r][0] = r % 2 == 0 ? 3 : 6, a[r][1] = 4;
  const auto errors = relative_errors(a, b, 2);
  EXPECT_DOUBLE_EQ(errors[0], 0);
  EXPECT_DOUBLE_EQ(errors[1], 3.0 / 5.0);
}

}  // namespace
}  // namespace ballast
