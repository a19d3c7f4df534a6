// q4, q3 and q2 against the formulas, in float64.
#include "storage/rotated.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "ballast/error.h"
#include "ballast/row_mean.h"
#include "ballast/storage.h"
#include "storage/rotated_reference.h"

namespace ballast {
namespace {

using test::code_at, test::Code, test::integer_words, test::kCodes, test::rotation;

constexpr std::size_t kDims[] = {1, 3, 16, 24, 64, 72, 80, 96, 100, 128, 256};

std::vector<double> rotated(const std::vector<float>& row, const std::vector<float>& mean) {
  const auto r = rotation(row.size());
  std::vector<double> y(row.size(), 0.0);
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t j = 0; j < row.size(); ++j) {
      y[i] += r[i][j] * (double{row[j]} - (mean.empty() ? 0.0 : double{mean[j]}));
    }
  }
  return y;
}

std::vector<float> normal_row(std::mt19937& random, std::size_t dim, float size = 1.0f) {
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> row(dim);
  for (float& x : row) x = normal(random);
  return row;
}

TEST(Rotation, IsThatOfTheFormulaAndItsTransposeUndoesIt) {
  std::mt19937 random(3);
  for (std::size_t dim : kDims) {
    const auto row = normal_row(random, dim);
    std::vector<float> y(dim), back(dim);
    hadamard_rotate(row, y.data());
    const auto expected = rotated(row, {});
    for (std::size_t i = 0; i < dim; ++i) ASSERT_NEAR(y[i], expected[i], 1e-5) << dim;
    hadamard_rotate_back(y, back.data());
    for (std::size_t i = 0; i < dim; ++i) ASSERT_NEAR(back[i], row[i], 1e-5) << dim;
  }
}

std::shared_ptr<const RowMean> about(const std::vector<float>& mean) {
  return std::make_shared<const RowMean>(mean);
}

TEST(Rotated, CodesAndScalesAreThoseOfTheFormula) {
  std::mt19937 random(4);
  for (const Code& code : kCodes) {
    const auto words = integer_words(code);
    auto sorted = words;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t dim : kDims) {
      for (float size : {1.0f, 1e-30f, 1e30f}) {
        for (bool has_mean : {false, true}) {
          const auto mean = has_mean ? normal_row(random, dim, 3 * size) : std::vector<float>();
          Rows rows(code.type, dim, 1);
          if (has_mean) rows.set_mean(about(mean));
          const auto row = normal_row(random, dim, size);
          rows.set(0, row);
          const auto y = rotated(row, mean);
          double square = 0.0;
          for (double x : y) square += x * x;
          const double unit =
              std::sqrt(static_cast<double>(dim) / square) * 127.0 / code.words.back();
          double yc = 0.0, cc = 0.0;
          std::vector<double> c(dim);
          for (std::size_t i = 0; i < dim; ++i) {
            c[i] = sorted[code_at(code.type, rows.payload(0), dim, i)];
            for (double w : words) {
              // Nearest, but for what float rounds.
              ASSERT_LE(std::abs(y[i] * unit - c[i]), std::abs(y[i] * unit - w) + 2e-3);
            }
            yc += y[i] * c[i];
            cc += c[i] * c[i];
          }
          const double scale = std::bit_cast<float>(std::uint32_t{rows.scales(0)[0]} << 16);
          ASSERT_NEAR(scale, yc / cc, std::abs(yc / cc) * (0x1p-8 + 1e-5)) << dim;
          // decode: μ + Rᵀ a c
          const auto r = rotation(dim);
          std::vector<float> back(dim);
          rows.view(0, 1).decode(0, back);
          for (std::size_t j = 0; j < dim; ++j) {
            double x = has_mean ? double{mean[j]} : 0.0;
            for (std::size_t i = 0; i < dim; ++i) x += r[i][j] * scale * c[i];
            ASSERT_NEAR(back[j], x, 1e-5 * double{size}) << dim;
          }
        }
      }
    }
  }
}

double relative_error(StorageType type, std::size_t dim, int count, std::mt19937& random) {
  Rows rows(type, dim, 1);
  std::vector<float> back(dim);
  double lost = 0.0, all = 0.0;
  for (int i = 0; i < count; ++i) {
    const auto row = normal_row(random, dim);
    rows.set(0, row);
    rows.view(0, 1).decode(0, back);
    for (std::size_t j = 0; j < dim; ++j) {
      lost += (double{row[j]} - back[j]) * (double{row[j]} - back[j]);
      all += double{row[j]} * row[j];
    }
  }
  return lost / all;
}

// Rows are scaled by their own norm, which gains a little where they are short: 4% at 64.
TEST(Rotated, NormalRowsLoseWhatTheCodebookSays) {
  std::mt19937 random(5);
  for (const Code& code : kCodes) {
    EXPECT_NEAR(relative_error(code.type, 256, 1500, random), code.error, 0.03 * code.error)
        << to_string(code.type);
    for (std::size_t dim : {64, 80, 96, 128}) {
      const double error = relative_error(code.type, dim, 1500, random);
      EXPECT_LE(error, code.error) << to_string(code.type) << ", " << dim;
      EXPECT_GE(error, 0.93 * code.error) << to_string(code.type) << ", " << dim;
    }
  }
}

// One element that outweighs all: without the rotation it would cost all others their codes.
TEST(Rotated, OutliersAreSpreadOverTheRow) {
  std::mt19937 random(6);
  for (std::size_t dim : {64, 80, 96, 128, 256}) {
    auto row = normal_row(random, dim);
    row[7] = 50.0f;
    Rows rows(StorageType::q4, dim, 1);
    rows.set(0, row);
    std::vector<float> back(dim);
    rows.view(0, 1).decode(0, back);
    double lost = 0.0, all = 0.0;
    for (std::size_t j = 0; j < dim; ++j) {
      lost += (double{row[j]} - back[j]) * (double{row[j]} - back[j]);
      all += double{row[j]} * row[j];
    }
    EXPECT_LE(lost / all, 0.03) << dim;
  }
}

TEST(Rotated, ZeroRowsAndRowsEqualToTheMeanAreExact) {
  for (const Code& code : kCodes) {
    const std::vector<float> mean(80, 0.3f), zero(80, 0.0f);
    Rows plain(code.type, 80, 1), centred(code.type, 80, 1);
    centred.set_mean(about(mean));
    plain.set(0, zero);
    centred.set(0, mean);
    EXPECT_EQ(plain.scales(0)[0], 0);
    EXPECT_EQ(centred.scales(0)[0], 0);
    std::vector<float> back(80);
    plain.view(0, 1).decode(0, back);
    EXPECT_EQ(back, zero);
    centred.view(0, 1).decode(0, back);
    EXPECT_EQ(back, mean);
  }
}

TEST(Rotated, ExtremeMagnitudesStayFinite) {
  const float largest = std::numeric_limits<float>::max();
  for (const Code& code : kCodes) {
    for (std::size_t dim : {1, 64, 80, 256, 300}) {
      for (float size : {largest, 1e37f, 1e-38f, 1e-45f}) {
        std::vector<float> row(dim, size), back(dim);
        for (std::size_t i = 0; i < dim; i += 3) row[i] = -size;
        Rows rows(code.type, dim, 1);
        rows.set(0, row);
        rows.view(0, 1).decode(0, back);
        for (float x : back) ASSERT_TRUE(std::isfinite(x)) << size;
      }
    }
  }
}

TEST(Rotated, CopiesKeepBitsOnlyWhereMeansAgree) {
  std::mt19937 random(7);
  const auto mean = normal_row(random, 64, 2.0f), other = normal_row(random, 64, 2.0f);
  Rows source(StorageType::q4, 64, 1), same(StorageType::q4, 64, 1),
      different(StorageType::q4, 64, 1), plain(StorageType::q4, 64, 1);
  source.set_mean(about(mean));
  same.set_mean(about(mean));
  different.set_mean(about(other));
  const auto row = normal_row(random, 64);
  source.set(0, row);
  for (Rows* target : {&same, &different, &plain}) target->copy(0, source.view(0, 1), 0);
  EXPECT_TRUE(std::ranges::equal(same.payload(0), source.payload(0)));
  EXPECT_EQ(same.scales(0)[0], source.scales(0)[0]);
  std::vector<float> expected(64), back(64);
  source.view(0, 1).decode(0, expected);
  for (const Rows* target : {&different, &plain}) {
    target->view(0, 1).decode(0, back);
    double lost = 0.0;
    for (std::size_t i = 0; i < 64; ++i) lost += std::pow(double{back[i]} - expected[i], 2);
    EXPECT_LE(lost / 64, 0.1);  // rounded again, about the right mean
  }
}

TEST(Rotated, SizesAreAsDocumented) {
  EXPECT_EQ(stored_row_bytes(StorageType::q4, 64), 34u);
  EXPECT_EQ(stored_row_bytes(StorageType::q3, 64), 26u);
  EXPECT_EQ(stored_row_bytes(StorageType::q2, 64), 18u);
  EXPECT_EQ(stored_row_bytes(StorageType::q2, 80), 22u);
  EXPECT_EQ(stored_row_bytes(StorageType::q3, 80), 32u);
  EXPECT_EQ(stored_row_bytes(StorageType::q4, 256), 130u);
  Rows rows(StorageType::q2, 64, 10);
  EXPECT_EQ(rows.bytes(), 180u);
  rows.set_mean(about(std::vector<float>(64, 1.0f)));
  EXPECT_EQ(rows.bytes(), 180u);  // the mean is the head's
}

TEST(Rotated, MeansOfOtherSizesAndNumbersAreRefused) {
  Rows q4(StorageType::q4, 64, 1), bf16(StorageType::bf16, 64, 1);
  EXPECT_THROW(q4.set_mean(about(std::vector<float>(63))), Error);
  EXPECT_THROW(about(std::vector<float>(64, NAN)), Error);
  bf16.set_mean(about(std::vector<float>(64, 1.0f)));
  EXPECT_EQ(bf16.mean(), nullptr);  // float rows are relative to nothing
}

}  // namespace
}  // namespace ballast
