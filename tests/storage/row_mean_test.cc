// The mean of rows before rotation, against float64.
#include "ballast/row_mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ballast/error.h"
#include "storage/gap_code.h"
#include "storage/turns.h"

namespace ballast {
namespace {

struct Kind {
  const char* name;
  Rotary rotary;
};

/// Rotations of heads of 64: all of it, a part, adjacent pairs, scaled; slow ones (base 10⁶).
std::vector<Kind> kinds() {
  const auto frequencies = [](std::size_t count, double base) {
    std::vector<float> out;
    for (std::size_t f = 0; f < count; ++f) {
      out.push_back(
          static_cast<float>(std::pow(base, -static_cast<double>(f) / static_cast<double>(count))));
    }
    return out;
  };
  return {{"none", {}},
          {"whole", {frequencies(32, 1e6), 1.0f, false}},
          {"part", {frequencies(10, 1e4), 1.0f, false}},
          {"pairs", {frequencies(32, 1e4), 1.0f, true}},
          {"scaled", {frequencies(32, 5e5), 1.19f, false}}};
}

std::vector<double> turned(const Rotary& rotary, Position n, const std::vector<double>& row) {
  std::vector<double> out = row;
  const std::size_t count = rotary.frequencies.size();
  for (std::size_t f = 0; f < count; ++f) {
    const std::size_t a = rotary.pairs ? 2 * f : f, b = rotary.pairs ? 2 * f + 1 : f + count;
    const double angle = static_cast<double>(n) * double{rotary.frequencies[f]};
    out[a] = double{rotary.magnitude} * (row[a] * std::cos(angle) - row[b] * std::sin(angle));
    out[b] = double{rotary.magnitude} * (row[b] * std::cos(angle) + row[a] * std::sin(angle));
  }
  return out;
}

std::vector<double> normal_row(std::mt19937& random, double size) {
  std::normal_distribution<double> normal(0.0, size);
  std::vector<double> row(64);
  for (double& x : row) x = normal(random);
  return row;
}

std::vector<float> floats(const std::vector<double>& row) { return {row.begin(), row.end()}; }

TEST(RowMean, TurnsAsRotaryDoesAtEveryPosition) {
  std::mt19937 random(1);
  for (const auto& [name, rotary] : kinds()) {
    const std::vector<double> mean = normal_row(random, 30.0);
    const RowMean stored(floats(mean), rotary);
    for (Position n : {0, 1, 63, 64, 127, 1023, 1024, 8191, 100'000, 2'000'000'000}) {
      const std::vector<double> expected = turned(rotary, n, mean);
      std::vector<float> got(64);
      stored.at(n, got.data());
      for (std::size_t c = 0; c < 64; ++c) ASSERT_NEAR(got[c], expected[c], 1e-4) << name << n;
    }
  }
}

// Rows that are the turned mean and noise: the mean comes back, whatever the positions.
TEST(RowMean, OfRowsIsTheMeanBeforeRotation) {
  std::mt19937 random(2);
  for (const auto& [name, rotary] : kinds()) {
    const std::vector<double> mean = normal_row(random, 30.0);
    Matrix rows(256, 64);
    std::vector<double> noise(64, 0.0);
    for (std::size_t i = 0; i < 256; ++i) {
      std::vector<double> row = normal_row(random, 3.0);
      for (std::size_t c = 0; c < 64; ++c) {
        noise[c] += row[c] / 256;
        row[c] += mean[c];
      }
      row = turned(rotary, static_cast<Position>(i + 4), row);
      std::ranges::copy(floats(row), rows[i].begin());
    }
    RowsView view = view_f32(rows.view());
    view.first_position = 4;
    const RowMean found = RowMean::of_keys(view, rotary);
    for (std::size_t c = 0; c < 64; ++c)
      ASSERT_NEAR(found.mean()[c], mean[c] + noise[c], 1e-4) << name;
  }
}

// However views say where rows stand, they are decoded about the mean turned there.
TEST(RowMean, RowsAreDecodedAtTheirPositions) {
  std::mt19937 random(3);
  for (StorageType type : {StorageType::q4, StorageType::q2, StorageType::int4}) {
    for (const auto& [name, rotary] : kinds()) {
      const std::vector<double> mean = normal_row(random, 40.0);
      const auto about = std::make_shared<const RowMean>(floats(mean), rotary);
      Rows rows(type, 64, 20);
      rows.set_mean(about);
      std::vector<Position> positions;
      for (std::size_t i = 0; i < 20; ++i) {
        positions.push_back((i == 0 ? 7 : positions.back()) + 1 + static_cast<Position>(i * i));
        const std::vector<double> place = turned(rotary, positions[i], mean);
        std::vector<double> row = normal_row(random, 1.0);
        for (std::size_t c = 0; c < 64; ++c) row[c] += place[c];
        rows.set(i, floats(row), positions[i]);
      }
      std::vector<std::uint8_t> code(gap_bytes(positions));
      encode_gaps(positions, code.data());
      RowsView coded = rows.view(0, 20);
      coded.gaps = code.data();
      const RowsView listed = rows.view(0, 20, positions.data());
      Matrix all(20, 64);
      coded.decode(all.view());
      for (std::size_t i = 0; i < 20; ++i) {
        std::vector<float> difference(64), one(64), other(64);
        listed.decode_difference(i, difference);
        listed.slice(i, 1).decode(0, one);
        coded.decode(i, other);
        EXPECT_EQ(one, other);
        const std::vector<double> place = turned(rotary, positions[i], mean);
        for (std::size_t c = 0; c < 64; ++c) {
          ASSERT_NEAR(one[c], place[c] + difference[c], 1e-4) << name;
          ASSERT_EQ(one[c], all[i][c]);
          ASSERT_LT(std::abs(difference[c]), 6.0f) << name;  // no trace of the mean
        }
      }
    }
  }
}

TEST(RowMean, RowsMoveBetweenTypesWithoutTheMean) {
  std::mt19937 random(4);
  const Rotary rotary = kinds()[1].rotary;
  const auto about = std::make_shared<const RowMean>(floats(normal_row(random, 40.0)), rotary);
  Rows q4(StorageType::q4, 64, 1), q2(StorageType::q2, 64, 1), int8(StorageType::int8, 64, 1);
  q4.set_mean(about);
  q2.set_mean(about);
  std::vector<float> place(64), back(64), first(64);
  about->at(500, place.data());
  q4.set(0, place, 500);
  q4.view(0, 1, Position{500}).decode(0, first);
  EXPECT_EQ(first, place);
  q2.copy(0, q4.view(0, 1), 0);  // without a position: the difference is all that moves
  q2.view(0, 1, Position{500}).decode(0, back);
  EXPECT_EQ(back, place);
  int8.copy(0, q4.view(0, 1, Position{500}), 0);
  int8.view(0, 1).decode(0, back);
  for (std::size_t c = 0; c < 64; ++c) EXPECT_NEAR(back[c], place[c], 1.5f);
  EXPECT_THROW(int8.copy(0, q4.view(0, 1), 0), Error);
}

// A value's code is as long along the value as the value is, so that errors of many average out; a
// key's is shorter, which errs least.
TEST(RowMean, CodesOfValuesAreUnbiased) {
  std::mt19937 random(5);
  Rows values(StorageType::q2, 64, 1), keys(StorageType::q2, 64, 1);
  const std::vector<float> zero(64, 0.0f);
  values.set_mean(std::make_shared<const RowMean>(RowMean::for_values(zero)));
  keys.set_mean(std::make_shared<const RowMean>(zero));
  double of_values = 0, of_keys = 0, all = 0;
  std::vector<float> value(64), key(64);
  for (int i = 0; i < 400; ++i) {
    const std::vector<float> row = floats(normal_row(random, 1.0));
    values.set(0, row);
    keys.set(0, row);
    values.view(0, 1).decode(0, value);
    keys.view(0, 1).decode(0, key);
    for (std::size_t c = 0; c < 64; ++c) {
      of_values += double{value[c]} * double{row[c]};
      of_keys += double{key[c]} * double{row[c]};
      all += double{row[c]} * double{row[c]};
    }
  }
  EXPECT_NEAR(of_values / all, 1.0, 0.002);
  EXPECT_NEAR(of_keys / all, 1 - 0.1175, 0.01);
}

TEST(Turns, CachesOfAProcessShareThem) {
  const Rotary rotary = kinds()[1].rotary;
  const auto one = Turns::of(rotary), two = Turns::of(rotary);
  EXPECT_EQ(one, two);
  EXPECT_NE(one, Turns::of(kinds()[3].rotary));
  EXPECT_EQ(Turns::of({}), nullptr);
}

}  // namespace
}  // namespace ballast
