// Logits and the weights made of them, a row of a block at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/avx512.h"
#include "simd/cpu.h"
#include "simd/forced_target.h"

namespace ballast {
namespace {

using kernels::kEntryBlock;
using test::ForcedTarget;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of one row.
kernels::FinishedLogits finish(const kernels::LogitRule& rule, std::size_t count, float* logits) {
  kernels::FinishedLogits finished;
  kernels::finish_logits({&rule, 1}, count, logits, &finished);
  return finished;
}
double exponentiate(float scale, float largest, float* logits) {
  const kernels::FinishedLogits row{largest, scale};
  double sum = 0.0;
  kernels::exponentiate({&row, 1}, logits, &sum);
  return sum;
}

class AttentionWeights : public testing::TestWithParam<std::int64_t> {
 protected:
  std::vector<float> row(float size) {
    std::normal_distribution<float> normal(0.0f, size);
    std::vector<float> row(kEntryBlock);
    for (float& x : row) x = normal(random_);
    return row;
  }

  ForcedTarget forced_{GetParam()};
  std::mt19937 random_{11};
};

// The rule in float64.
std::vector<double> logits_of(const kernels::LogitRule& rule, std::size_t count,
                              const std::vector<float>& products) {
  std::vector<double> logits(kEntryBlock, -INFINITY);
  for (std::size_t e = 0; e < count; ++e) {
    double x = double{products[e]} * rule.scale;
    if (rule.softcap > 0.0f) x = rule.softcap * std::tanh(x / rule.softcap);
    if (rule.log_weights != nullptr) x += rule.log_weights[e];
    if (rule.positions != nullptr) {
      const int distance = rule.query_position - rule.positions[e];
      x -= double{rule.slope} * distance;
      const bool old = rule.sliding_window > 0 && distance >= rule.sliding_window;
      if (rule.hide && (distance < 0 || old)) x = -INFINITY;
    }
    logits[e] = x;
  }
  return logits;
}

TEST_P(AttentionWeights, MatchFloat64) {
  const std::vector<float> log_weights = row(1.0f);
  std::vector<std::int32_t> positions(kEntryBlock);
  for (std::size_t e = 0; e < kEntryBlock; ++e) positions[e] = static_cast<std::int32_t>(3 * e);
  double worst = 0.0;
  for (std::size_t count : {1, 2, 15, 16, 17, 127, 128}) {
    for (float size : {0.0f, 1e-3f, 1.0f, 30.0f, 1e4f, 1e30f}) {
      for (int kind = 0; kind < 8; ++kind) {
        kernels::LogitRule rule;
        rule.scale = kind == 6 ? -0.37f : kind == 7 ? 0.0f : 0.37f;
        if (kind == 1) rule.log_weights = log_weights.data();
        if (kind == 2) rule.softcap = 5.0f;
        if (kind >= 3 && kind <= 5) {
          rule.positions = positions.data();
          rule.query_position = 200;
        }
        if (kind == 4) rule.slope = 0.03f;
        if (kind == 5) {
          rule.hide = true;
          rule.sliding_window = 150;
        }
        std::vector<float> numbers = row(size);
        const std::vector<double> exact = logits_of(rule, count, numbers);
        const double most = *std::max_element(exact.begin(), exact.end());
        const auto [largest, scale] = finish(rule, count, numbers.data());
        if (most == -INFINITY) {
          EXPECT_EQ(largest, -kInfinity);
          continue;
        }
        const double rounding = 2.5e-7 * (std::abs(most) + 5.0);
        EXPECT_NEAR(largest, most, rounding) << count << " " << size << " " << kind;
        const float above =
            kind == 0 || kind > 5 ? 0.0f : 0.5f;  // an earlier block may have had a larger one
        const double sum = exponentiate(scale, largest + above, numbers.data());
        double total = 0.0;
        for (std::size_t e = 0; e < kEntryBlock; ++e) {
          const double x = exact[e] - most - double{above};
          const double weight = std::exp(x);
          total += double{numbers[e]};
          if (x < -87.0) {
            EXPECT_LE(numbers[e], 2e-38f);
            continue;
          }
          // Of logits and of their difference, and what the exponential adds.
          const double bound = 2.0 * rounding + 5e-7 + 2e-7 * std::abs(x);
          worst = std::max(worst, std::abs(numbers[e] / weight - 1.0) / bound);
        }
        EXPECT_NEAR(sum, total, 1e-6 * total);
      }
    }
  }
  RecordProperty("worst_of_bound", std::to_string(worst));
  EXPECT_LE(worst, 1.0);
}

TEST_P(AttentionWeights, ExponentialsAreAsExactAsIsSaid) {
  // The plain target has no fused multiply-adds.
  const double of_size = GetParam() == HWY_STATIC_TARGET ? 1e-7 : 2e-8;
  std::vector<float> numbers(kEntryBlock);
  double worst = 0.0;
  for (float begin = 0.0f; begin > -87.2f; begin -= 0.0371f) {
    for (std::size_t e = 0; e < kEntryBlock; ++e) {
      numbers[e] = begin - 2e-4f * static_cast<float>(e);
    }
    const std::vector<float> x = numbers;
    exponentiate(1.0f, 0.0f, numbers.data());
    for (std::size_t e = 0; e < kEntryBlock; ++e) {
      const double exact = std::exp(double{x[e]});
      const double bound = 2e-7 + of_size * std::abs(x[e]);
      worst = std::max(worst, std::abs(numbers[e] / exact - 1.0) / bound);
    }
  }
  RecordProperty("worst_of_bound", std::to_string(worst));
  EXPECT_LE(worst, 1.0);
}

TEST_P(AttentionWeights, NothingButTheScaleLeavesTheProducts) {
  std::vector<float> products = row(1.0f);
  const std::vector<float> before = products;
  std::vector<std::int32_t> positions(kEntryBlock, 3);
  kernels::LogitRule rule;
  rule.scale = 0.5f;
  for (const bool known : {false, true}) {
    rule.positions = known ? positions.data() : nullptr;  // none is hidden
    rule.query_position = 7;
    const auto finished = finish(rule, kEntryBlock, products.data());
    EXPECT_EQ(products, before);
    EXPECT_EQ(finished.scale, 0.5f);
    EXPECT_EQ(finished.largest, 0.5f * *std::max_element(before.begin(), before.end()));
  }
}

// Some rows are simple, others not, one is not finite, one hidden: all as if alone.
TEST_P(AttentionWeights, AreTheSameBitsInAnyCompany) {
  std::vector<std::int32_t> positions(kEntryBlock, 100);
  const std::vector<float> log_weights = row(2.0f);
  for (std::size_t rows = 1; rows <= 9; ++rows) {
    for (std::size_t odd = 0; odd < 6; ++odd) {
      for (std::size_t count : {kEntryBlock, kEntryBlock - 3}) {
        std::vector<kernels::LogitRule> rules(rows);
        std::vector<float> together;
        for (std::size_t r = 0; r < rows; ++r) {
          rules[r].scale = 0.1f * static_cast<float>(r + 1);
          const std::vector<float> one = row(3.0f);
          together.insert(together.end(), one.begin(), one.end());
        }
        kernels::LogitRule& rule = rules[odd % rows];
        float* numbers = together.data() + odd % rows * kEntryBlock;
        if (odd == 1) rule.log_weights = log_weights.data();
        if (odd == 2) numbers[17] = kInfinity;
        if (odd == 3) rule.scale = 3e38f;
        if (odd == 4) rule.scale = -1.0f;
        if (odd == 5) {
          rule.positions = positions.data();
          rule.hide = true;
          rule.query_position = 50;
        }
        std::vector<float> alone = together;
        std::vector<kernels::FinishedLogits> finished(rows);
        kernels::finish_logits(rules, count, together.data(), finished.data());
        std::vector<double> sums(rows);
        const auto limited = [](kernels::FinishedLogits& of) {
          if (of.largest == -kInfinity) of.largest = 0.0f;
        };
        for (auto& of : finished) limited(of);
        kernels::exponentiate(finished, together.data(), sums.data());
        for (std::size_t r = 0; r < rows; ++r) {
          float* own = alone.data() + r * kEntryBlock;
          kernels::FinishedLogits of = finish(rules[r], count, own);
          limited(of);
          EXPECT_EQ(of.largest, finished[r].largest) << rows << " " << odd << " " << r;
          EXPECT_EQ(of.scale, finished[r].scale);
          EXPECT_EQ(exponentiate(of.scale, of.largest, own), sums[r]);
        }
        EXPECT_EQ(together, alone) << rows << " " << odd;
        if (odd == 5) {
          EXPECT_EQ(sums[5 % rows], 0.0);
        }
      }
    }
  }
}

TEST_P(AttentionWeights, RangeOfPositionsIsFoundWhereverItsEndsAre) {
  std::vector<std::int32_t> positions(kEntryBlock);
  std::uniform_int_distribution<std::int32_t> some(-1000, 1000);
  for (std::size_t e = 0; e < kEntryBlock; ++e) {
    for (auto& position : positions) position = some(random_);
    positions[e] = std::numeric_limits<std::int32_t>::min();
    positions[kEntryBlock - 1 - e] = std::numeric_limits<std::int32_t>::max();
    const auto range = kernels::position_range(positions.data());
    EXPECT_EQ(range.first, std::numeric_limits<std::int32_t>::min()) << e;
    EXPECT_EQ(range.last, std::numeric_limits<std::int32_t>::max()) << e;
  }
}

TEST_P(AttentionWeights, OverflowedProductsStayComparable) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (float scale : {1.0f, 10.0f, 1e30f}) {
    for (float huge : {kInfinity, kLargest}) {
      std::vector<float> products = row(1.0f);
      products[77] = huge;
      products[78] = -huge;
      kernels::LogitRule rule;
      rule.scale = scale;
      const auto finished = finish(rule, kEntryBlock, products.data());
      EXPECT_EQ(finished.largest, kLargest);
      const double sum = exponentiate(finished.scale, finished.largest, products.data());
      EXPECT_EQ(sum, 1.0);
      for (std::size_t e = 0; e < kEntryBlock; ++e) {
        EXPECT_EQ(products[e], e == 77 ? 1.0f : 0.0f) << e;
      }
    }
  }
  std::vector<float> lowest(kEntryBlock, -kInfinity);
  const auto finished = finish({}, kEntryBlock, lowest.data());
  EXPECT_EQ(finished.largest, -kLargest);
  EXPECT_EQ(exponentiate(finished.scale, finished.largest, lowest.data()), kEntryBlock);
  // What has overflowed counts as the least number, also beside one that is it.
  for (std::size_t e : {0, 50, 127}) {
    std::vector<float> one(kEntryBlock, -kInfinity);
    one[e] = -kLargest;
    const auto rule = finish({}, kEntryBlock, one.data());
    EXPECT_EQ(exponentiate(rule.scale, rule.largest, one.data()), kEntryBlock) << e;
  }
}

TEST_P(AttentionWeights, NanIsSeenWhereverItIs) {
  for (std::size_t e = 0; e < kEntryBlock; ++e) {
    std::vector<float> products = row(1.0f);
    products[e] = NAN;
    const auto finished = finish({}, kEntryBlock, products.data());
    EXPECT_TRUE(std::isnan(exponentiate(finished.scale, finished.largest, products.data()))) << e;
    EXPECT_TRUE(std::isnan(products[e])) << e;
  }
}

TEST_P(AttentionWeights, AreTheSameBitsHoweverTheScaleIsApplied) {
  const std::vector<float> none(kEntryBlock, 0.0f);
  for (float size : {1.0f, 1e3f, 1e20f}) {
    std::vector<float> a = row(size), b = a;
    kernels::LogitRule rule;
    rule.scale = 0.37f;
    const auto left = finish(rule, kEntryBlock, a.data());
    rule.log_weights = none.data();
    const auto applied = finish(rule, kEntryBlock, b.data());
    EXPECT_EQ(left.scale, 0.37f);
    EXPECT_EQ(applied.scale, 1.0f);
    EXPECT_EQ(left.largest, applied.largest);
    EXPECT_EQ(exponentiate(left.scale, left.largest, a.data()),
              exponentiate(applied.scale, applied.largest, b.data()));
    EXPECT_EQ(a, b);
  }
}

// Queries of bf16 keys, where the processor multiplies them as they are: to the nearest bfloat16,
// of two equally near ones the even one, at most the largest; every NaN the same.
TEST(PackedQuery, OfBf16KeysIsRoundedToTheNearest) {
  if (!kernels::avx512::multiplies(StorageType::bf16)) GTEST_SKIP() << "not on this processor";
  const auto number = [](std::uint32_t word) {
    return static_cast<double>(std::bit_cast<float>(word << 16));
  };
  std::mt19937 random(5);
  for (std::size_t dim : {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 128, 255, 256}) {
    std::vector<float> row(dim);
    for (float& x : row) {
      std::uint32_t bits = static_cast<std::uint32_t>(random());
      if (random() % 2 == 0) bits = (bits & 0xFFFF0000u) | 0x8000u;  // half way
      x = std::bit_cast<float>(bits);
    }
    const std::vector<float> special = {NAN,     -NAN,        kInfinity,  -kInfinity, 0.0f,
                                        -0.0f,   1e-45f,      -1e-40f,    3.4e38f,    -3.4e38f,
                                        1.0039f, 1.01171875f, 1.00390625f};
    for (std::size_t i = 0; i < std::min(dim, special.size()); ++i) {
      row[(i * 7) % dim] = special[i];
    }
    std::vector<float> packed(kernels::packed_size(dim), 1.0f);
    kernels::pack_query(StorageType::bf16, row, packed.data());
    const auto word_at = [&](std::size_t i) {
      return std::uint32_t{reinterpret_cast<const std::uint16_t*>(packed.data())[i]};
    };
    // Behind the row: with tiles its words again, 32 at a time in another order, else zeros.
    for (std::size_t i = 0; i < packed.size(); i += 32) {
      std::vector<std::uint32_t> ahead, behind;
      for (std::size_t j = i; j < i + 32; ++j) {
        ahead.push_back(has_amx_bf16() ? word_at(j) : 0u);
        behind.push_back(word_at(packed.size() + j));
      }
      EXPECT_THAT(behind, testing::UnorderedElementsAreArray(ahead)) << i << " of " << dim;
    }
    for (std::size_t i = 0; i < packed.size(); ++i) {
      const std::uint32_t word = word_at(i);
      if (i >= dim) {
        EXPECT_EQ(word, 0u) << i << " of " << dim;
      } else if (std::isnan(row[i])) {
        EXPECT_EQ(word, 0x7FC0u);
      } else if (std::abs(row[i]) > number(0x7F7F)) {
        EXPECT_EQ(word, row[i] < 0.0f ? 0xFF7Fu : 0x7F7Fu);
      } else {
        EXPECT_EQ(word >> 15, std::bit_cast<std::uint32_t>(row[i]) >> 31);
        const std::uint32_t magnitude = word & 0x7FFFu;
        const double x = std::abs(double{row[i]}), distance = std::abs(number(magnitude) - x);
        for (std::uint32_t other : {magnitude - 1, magnitude + 1}) {
          if (other > 0x7F7Fu) continue;  // -1, too
          const double away = std::abs(number(other) - x);
          EXPECT_TRUE(distance < away || (distance == away && magnitude % 2 == 0)) << row[i];
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionWeights, testing::ValuesIn(test::kernel_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace ballast
