#include "experiments/attention/memory_error.h"

#include "experiments/data/synth.h"
#include "support.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

SynthOptions small_stream(std::size_t tokens) {
  SynthOptions o;
  o.tokens = tokens;
  o.heads = o.kv_heads = 1;
  o.dim = 8;
  o.query_norm = o.key_norm = 4;
  o.needle = -1;
  return o;
}

MemoryErrorOptions experiment() {
  MemoryErrorOptions o;
  o.policies = {Policy::parse("balancekv"), Policy::parse("uniform")};
  o.lengths = {500, 8192};
  o.budgets = {256, 512, 1024, 2048};
  o.seeds = 4;
  return o;
}

TEST(LogSlope, IsThatOfPowers) {
  EXPECT_NEAR(log_slope({1, 2, 4, 8}, {3, 1.5, 0.75, 0.375}), -1, 1e-12);
  EXPECT_NEAR(log_slope({10, 1000}, {5, 0.5}), -0.5, 1e-12);
  EXPECT_EQ(log_slope({10}, {5}), 0);
  EXPECT_EQ(log_slope({}, {}), 0);
  EXPECT_EQ(log_slope({2, 2}, {5, 7}), 0);
}

// Theorem 3.1: the error of balancing falls like 1/memory, that of sampling like its root. The
// dimension and the norms are small, so that the theorem's constant is too.
TEST(MemoryError, BalancingFallsFasterThanSampling) {
  const Synth source(small_stream(needed_tokens(experiment())));
  const auto rows = measure_memory_errors(source, experiment());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].method, "balancekv");
  EXPECT_EQ(rows[0].budgets, std::vector<std::size_t>{256});  // the others hold all 500 tokens
  EXPECT_EQ(rows[0].slope, 0);
  const MemoryErrorRow &balance = rows[1], &uniform = rows[3];
  EXPECT_EQ(balance.tokens, 8192u);
  EXPECT_LT(balance.slope, -0.8);
  EXPECT_NEAR(uniform.slope, -0.5, 0.2);
  EXPECT_LT(balance.errors.back(), 0.7 * uniform.errors.back());
  for (const MemoryErrorRow& row : rows) {
    for (std::size_t b = 0; b < row.budgets.size(); ++b) {
      EXPECT_LE(row.entries[b], static_cast<double>(row.budgets[b]));
    }
  }
}

TEST(MemoryError, RefusesWhatItCannotMeasure) {
  const Synth source(small_stream(9000));
  auto refusal = [&](auto change) {
    MemoryErrorOptions o = experiment();
    change(o);
    return error_of([&] { measure_memory_errors(source, o); });
  };
  EXPECT_THAT(refusal([](auto& o) { o.policies = {Policy::parse("h2o")}; }),
              HasSubstr("watches attention"));
  EXPECT_THAT(refusal([](auto& o) { o.policies = {Policy()}; }), HasSubstr("makes no summary"));
  EXPECT_THAT(refusal([](auto& o) { o.policies = {Policy::parse("uniform:budget=5")}; }),
              HasSubstr("sets budget"));
  EXPECT_THAT(refusal([](auto& o) { o.lengths = {16}; }), HasSubstr("sink of 16"));
  EXPECT_THAT(refusal([](auto& o) { o.lengths = {9000}; }), HasSubstr("9000 tokens"));
  EXPECT_THAT(refusal([](auto& o) { o.seeds = 0; }), HasSubstr("seeds"));
}

}  // namespace
}  // namespace ballast::test
