// The self-balancing walk against a float64 one written from the formulas, on every target.
#include "methods/kernels/balance.h"

#include <numeric>

#include "attention/kernels/avx512.h"
#include "ballast/random.h"
#include "simd/forced_target.h"
#include "simd/trapped_tiles.h"
#include "support.h"

namespace ballast {
namespace {

using kernels::BalanceBlock;
using kernels::SignRule;

struct Case {
  Matrix keys, values;
  std::vector<float> weights, offsets;
  std::vector<Position> positions;
  std::size_t size() const { return keys.rows(); }
};

Case make_case(std::size_t tokens, std::size_t key_dim, std::size_t value_dim, std::uint64_t seed,
               float key_size = 1.0f) {
  Case c{test::random_matrix(tokens, key_dim, seed, key_size),
         test::random_matrix(tokens, value_dim, seed + 1),
         {},
         {},
         {}};
  std::mt19937_64 rng(seed + 2);
  std::uniform_real_distribution<float> uniform(0.5f, 4.0f);
  for (std::size_t i = 0; i < tokens; ++i) {
    c.weights.push_back(uniform(rng));
    c.offsets.push_back(uniform(rng) * 0.2f);
    c.positions.push_back(static_cast<Position>(10 + i));
  }
  return c;
}

void load(BalanceBlock& block, const Case& c) {
  block.resize(c.size(), c.keys.cols(), c.values.cols());
  for (std::size_t g = 0; g * BalanceBlock::kGroup < c.size(); ++g) {
    const std::size_t first = g * BalanceBlock::kGroup;
    const std::size_t count = std::min(BalanceBlock::kGroup, c.size() - first);
    std::vector<const float*> keys, values;
    for (std::size_t i = first; i < first + count; ++i) {
      keys.push_back(c.keys[i].data());
      values.push_back(c.values[i].data());
    }
    block.set_group(g, keys, values, std::span(c.weights).subspan(first, count));
  }
  std::copy(c.offsets.begin(), c.offsets.end(), block.offsets().begin());
}

/// Keys without their mean, in float64.
std::vector<std::vector<double>> centered(const Case& c) {
  std::vector<std::vector<double>> out(c.size(), std::vector<double>(c.keys.cols()));
  for (std::size_t d = 0; d < c.keys.cols(); ++d) {
    double mean = 0;
    for (std::size_t i = 0; i < c.size(); ++i) mean += c.keys[i][d];
    mean /= static_cast<double>(c.size());
    for (std::size_t i = 0; i < c.size(); ++i) out[i][d] = c.keys[i][d] - mean;
  }
  return out;
}

/// Follows `signs` and checks each decision: tokens whose probability is too near the draw for
/// float32, or numbers rounded to bf16, to tell are counted as `close` and not judged.
struct Verdict {
  std::size_t wrong = 0, close = 0, exceeded = 0;
};
Verdict judge(const Case& c, const SignRule& rule, std::span<const float> signs,
              bool rounded = false) {
  const auto keys = centered(c);
  Verdict verdict;
  for (std::size_t j = 0; j < c.size(); ++j) {
    std::vector<double> exponent(j);
    double top = -1e300;
    for (std::size_t i = 0; i < j; ++i) {
      const double dot = std::inner_product(keys[i].begin(), keys[i].end(), keys[j].begin(), 0.0);
      exponent[i] = double{rule.scale} * dot;
      top = std::max(top, exponent[i]);
    }
    double sum = 0, size = 0;
    for (std::size_t i = 0; i < j; ++i) {
      double product = double{c.offsets[i]} * c.offsets[j];
      for (std::size_t d = 0; d < c.values.cols(); ++d) {
        product += double{c.values[i][d]} * c.values[j][d] * c.weights[i] * c.weights[j];
      }
      const double y = std::exp(exponent[i] - top) * product;
      sum += y * signs[i];
      size += std::abs(y);
    }
    const double grow = std::exp(std::min(600.0, top - rule.shift));
    const double x = j == 0 ? 0 : rule.gain * sum * grow;
    const double slack = j == 0 ? 0 : (rounded ? 5e-3 : 1e-3) * rule.gain * size * grow;
    verdict.exceeded += std::abs(x) > 0.5 ? 1 : 0;
    double p = std::clamp(0.5 - x, 0.0, 1.0);
    if (j == 0 && rule.first_plus) p = 1;
    const double u =
        random_unit(rule.key, static_cast<std::uint64_t>(c.positions[j]), rule.stream, rule.round);
    const bool plus = u < p;
    if (std::abs((0.5 - x) - u) < slack || std::abs(std::abs(x) - 0.5) < slack) {
      ++verdict.close;
    } else if (plus != (signs[j] > 0)) {
      ++verdict.wrong;
    }
  }
  return verdict;
}

void check_signs() {
  BalanceBlock block;
  std::uint64_t seed = 1;
  for (std::size_t tokens : {1, 2, 3, 7, 8, 9, 16, 17, 47, 48, 49, 100, 255, 256, 300}) {
    for (auto [key_dim, value_dim] : {std::pair{1, 1}, {5, 3}, {64, 128}, {128, 0}, {33, 70}}) {
      const Case c = make_case(tokens, static_cast<std::size_t>(key_dim),
                               static_cast<std::size_t>(value_dim), ++seed, 0.7f);
      SignRule rule;
      rule.scale = 1.0f / std::sqrt(static_cast<float>(key_dim));
      rule.gain = 0.05;  // probabilities of every size
      rule.shift = 0.3;
      rule.first_plus = seed % 2 == 0;
      rule.key = {seed, 1, 2};
      rule.round = 3;
      load(block, c);
      block.center();
      const std::size_t exceeded = block.walk(rule, c.positions);
      const bool rounded = kernels::avx512::multiplies(StorageType::bf16);
      const Verdict verdict = judge(c, rule, block.signs(), rounded);
      EXPECT_EQ(verdict.wrong, 0u) << tokens << " tokens, " << key_dim << ", " << value_dim;
      EXPECT_LE(verdict.close, 2 + tokens / (rounded ? 3 : 10));
      EXPECT_NEAR(static_cast<double>(exceeded), static_cast<double>(verdict.exceeded),
                  static_cast<double>(verdict.close));
    }
  }
}

class BalanceKernel : public testing::TestWithParam<std::int64_t> {
 protected:
  test::ForcedTarget target_{GetParam()};
};

TEST_P(BalanceKernel, SignsFollowTheFormula) { check_signs(); }

#if defined(__x86_64__) && defined(__linux__)
TEST(BalanceByTiles, SignsFollowTheFormula) {
  if (!has_avx512_bf16() || !has_avx512_vnni()) {
    GTEST_SKIP() << "needs AVX512_BF16 beside the emulated tiles";
  }
  const test::TrappedTiles tiles;
  const std::size_t before = has_amx_bf16() ? tiles.products() : 0;
  check_signs();
  EXPECT_TRUE(tiles.real() || tiles.products() > before);
}
#endif

TEST_P(BalanceKernel, HugeNormsDecideAsTheFormulaDoes) {
  BalanceBlock block;
  for (float size : {1e1f, 1e3f, 1e6f, 1e12f}) {
    const Case c = make_case(120, 16, 8, 77, size);
    SignRule rule;
    rule.scale = 0.25f;
    rule.gain = 4;
    rule.first_plus = true;
    rule.key = {5, 0, 0};
    load(block, c);
    block.center();
    block.walk(rule, c.positions);
    const auto signs = block.signs();
    const auto plus = std::count(signs.begin(), signs.end(), 1.0f);
    EXPECT_GT(plus, 20) << size;
    EXPECT_LT(plus, 100) << size;
    EXPECT_EQ(judge(c, rule, signs).wrong, 0u) << size;
  }
}

TEST_P(BalanceKernel, FindsTheLargestNorms) {
  const Case c = make_case(37, 20, 9, 3);
  BalanceBlock block;
  load(block, c);
  block.center();
  const auto keys = centered(c);
  double key = 0, value = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    key = std::max(key, std::inner_product(keys[i].begin(), keys[i].end(), keys[i].begin(), 0.0));
    double square = double{c.offsets[i]} * c.offsets[i];
    for (float x : c.values[i]) square += double{x} * x * c.weights[i] * c.weights[i];
    value = std::max(value, square);
  }
  EXPECT_NEAR(block.largest_key_square() / key, 1, 1e-5);
  EXPECT_NEAR(block.largest_value_square() / value, 1, 1e-5);
}

TEST_P(BalanceKernel, AlternatesOnEqualTokens) {
  BalanceBlock block;
  Case c = make_case(64, 8, 4, 9);
  for (std::size_t i = 1; i < 64; ++i) {
    std::copy(c.keys[0].begin(), c.keys[0].end(), c.keys[i].begin());
    std::copy(c.values[0].begin(), c.values[0].end(), c.values[i].begin());
  }
  std::fill(c.weights.begin(), c.weights.end(), 1.0f);
  load(block, c);
  block.center();
  SignRule rule;
  rule.gain = 100;
  rule.first_plus = true;
  block.walk(rule, c.positions);
  float sum = 0;
  for (float sign : block.signs()) {
    sum += sign;
    EXPECT_LE(std::abs(sum), 1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, BalanceKernel, testing::ValuesIn(test::kernel_targets()));

}  // namespace
}  // namespace ballast
