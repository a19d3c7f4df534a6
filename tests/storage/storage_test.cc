#include "ballast/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ballast/error.h"
#include "storage/round.h"

namespace ballast {
namespace {

constexpr StorageType kTypes[] = {StorageType::f32, StorageType::bf16, StorageType::f16,
                                  StorageType::int8, StorageType::int4};
constexpr StorageType kAllTypes[] = {StorageType::f32,  StorageType::bf16, StorageType::f16,
                                     StorageType::int8, StorageType::int4, StorageType::q4,
                                     StorageType::q3,   StorageType::q2};

// How far a number may move, from the definition of each type: half a step of its grid.
double tolerance(StorageType type, std::span<const float> row, std::size_t i) {
  const double x = std::abs(row[i]);
  switch (type) {
    case StorageType::f32:
      return 0.0;
    case StorageType::bf16:
      return std::max(x * 0x1p-8, 0x1p-134);
    case StorageType::f16:
      return std::max(x * 0x1p-11, 0x1p-25);
    default:
      break;
  }
  const std::size_t begin = i / kQuantGroup * kQuantGroup;
  const std::size_t end = std::min(row.size(), begin + kQuantGroup);
  double low = row[begin], high = row[begin], largest = 0.0;
  for (std::size_t j = begin; j < end; ++j) {
    low = std::min<double>(low, row[j]);
    high = std::max<double>(high, row[j]);
    largest = std::max<double>(largest, std::abs(row[j]));
  }
  // Scales and offsets carry 8 bits, so steps may be 2^-7 wider than the range asks for.
  if (type == StorageType::int8) return 0.5 * (largest / 127 * (1 + 0x1p-7) + 0x1p-133) * 1.001;
  const double below = std::abs(low) * 0x1p-7 + 0x1p-133;
  return (0.5 * ((high - low + below) / 15 * (1 + 0x1p-7) + 0x1p-133)) * 1.001 +
         std::abs(low) * 1e-6;
}

// Types whose elements are rounded one by one, and all (rotated_test.cc has more of the others).
class Storage : public testing::TestWithParam<StorageType> {};
class AnyStorage : public testing::TestWithParam<StorageType> {};

TEST_P(Storage, RoundsWithinHalfAStepForAnyLengthAndMagnitude) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (std::size_t dim : {0, 1, 2, 15, 16, 31, 32, 33, 64, 80, 127, 128, 255, 256}) {
    for (float magnitude : {1.0f, 1e-3f, 1e-20f, 1e-37f, 3e3f, 1e30f, 1e37f}) {
      if (GetParam() == StorageType::f16 && magnitude > 1e4f) continue;
      Rows rows(GetParam(), dim, 3);
      for (std::size_t i = 0; i < 3; ++i) {
        std::vector<float> row(dim), back(dim);
        for (auto& x : row) x = (normal(random) + (i == 1 ? 5.0f : 0.0f)) * magnitude;
        rows.set(i, row);
        rows.view(0, 3).decode(i, back);
        for (std::size_t j = 0; j < dim; ++j) {
          ASSERT_LE(std::abs(double{back[j]} - row[j]), tolerance(GetParam(), row, j))
              << "dim " << dim << " magnitude " << magnitude << " number " << j << ": " << row[j]
              << " became " << back[j];
        }
      }
    }
  }
}

TEST_P(Storage, ConstantAndZeroRowsKeepTheirValue) {
  for (float value : {0.0f, -0.0f, 1.0f, -3.0f, 0.1f, -0.1f, 1e-38f, 1e-42f, 1e4f, -6e4f}) {
    std::vector<float> row(70, value), back(70);
    Rows rows(GetParam(), 70, 1);
    rows.set(0, row);
    rows.view(0, 1).decode(0, back);
    for (float x : back) {
      // A step of 2^-8 of the value, or the smallest step of a 16-bit word (times 127 at int8).
      const double slack = GetParam() == StorageType::f16 ? 0x1p-25 : 0x1p-133 * 64;
      ASSERT_NEAR(x, value, std::abs(value) / 127 + slack) << value;
    }
  }
}

TEST_P(Storage, TheLargestNumbersStayFinite) {
  const float huge = std::numeric_limits<float>::max();
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> row(64), back(64);
  for (auto& x : row) x = huge * uniform(random);
  row[0] = huge;
  row[1] = -huge;
  row[40] = huge;
  Rows rows(GetParam(), 64, 1);
  rows.set(0, row);
  rows.view(0, 1).decode(0, back);
  double cap = huge;
  if (GetParam() == StorageType::f16) cap = 65504.0;
  if (row_scales(GetParam(), 64) > 0) cap = 0x1.Cp126;
  for (std::size_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(std::isfinite(back[i]));
    const double expected = std::clamp<double>(row[i], -cap, cap);
    ASSERT_NEAR(back[i], expected, cap * 0.07);
  }
}

TEST_P(AnyStorage, CopyBetweenStoresOfOneTypeKeepsEveryBit) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  Rows source(GetParam(), 77, 4), target(GetParam(), 77, 2);
  std::vector<float> row(77), a(77), b(77);
  for (std::size_t i = 0; i < 4; ++i) {
    for (auto& x : row) x = normal(random);
    source.set(i, row);
  }
  target.copy(1, source.view(1, 3), 2);
  source.view(0, 4).decode(3, a);
  target.view(1, 1).decode(0, b);
  EXPECT_EQ(a, b);
  target.grow(9, 2);
  EXPECT_EQ(target.capacity(), 9u);
  target.view(1, 1).decode(0, b);
  EXPECT_EQ(a, b);
}

TEST_P(AnyStorage, CopyFromFloat32EqualsSet) {
  std::vector<float> row(300), a(300), b(300);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<float>(i));
  Rows set(GetParam(), 300, 1), copied(GetParam(), 300, 1);
  set.set(0, row);
  copied.copy(0, view_f32({row.data(), 1, 300}), 0);
  set.view(0, 1).decode(0, a);
  copied.view(0, 1).decode(0, b);
  EXPECT_EQ(a, b);
}

TEST_P(AnyStorage, NamesRoundTrip) {
  EXPECT_EQ(parse_storage_type(to_string(GetParam())), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Types, Storage, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(to_string(info.param)); });
INSTANTIATE_TEST_SUITE_P(Types, AnyStorage, testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(StorageSizes, AreAsDocumented) {
  EXPECT_EQ(row_bytes(StorageType::f32, 128), 512u);
  EXPECT_EQ(row_bytes(StorageType::bf16, 80), 160u);
  EXPECT_EQ(row_bytes(StorageType::f16, 3), 16u);
  EXPECT_EQ(row_bytes(StorageType::int8, 100), 112u);
  EXPECT_EQ(row_bytes(StorageType::int4, 128), 64u);
  EXPECT_EQ(row_scales(StorageType::int8, 100), 4u);
  EXPECT_EQ(row_scales(StorageType::int4, 128), 8u);
  EXPECT_EQ(row_scales(StorageType::bf16, 128), 0u);
  EXPECT_EQ(Rows(StorageType::int8, 128, 10).bytes(), 10 * (128 + 8u));
}

TEST(StorageSizes, ImpossibleOnesAreRefused) {
  EXPECT_THROW(Rows(StorageType::f32, 1024, SIZE_MAX / 8), Error);
  EXPECT_THROW(parse_storage_type("fp17"), Error);
}

TEST(Rounding, Bf16AgreesWithArithmetic) {
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(x)) continue;
    const float down = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFFFF0000u);
    const float got = kernels::bf16_decode(kernels::bf16_encode(x));
    const std::uint32_t next = (std::bit_cast<std::uint32_t>(x) & 0xFFFF0000u) + 0x10000u;
    const float up = std::bit_cast<float>(next);
    if (!std::isfinite(up)) {
      ASSERT_EQ(got, down);
      continue;
    }
    const double to_down = std::abs(double{x} - down), to_up = std::abs(double{up} - x);
    if (to_down < to_up) {
      ASSERT_EQ(got, down);
    } else if (to_up < to_down) {
      ASSERT_EQ(got, up);
    } else {
      ASSERT_EQ(kernels::bf16_encode(x) & 1, 0);
    }
    const double above = kernels::bf16_decode(kernels::bf16_encode_up(x));
    const double below = kernels::bf16_decode(kernels::bf16_encode_down(x));
    ASSERT_EQ(std::max(down, up), down == x ? std::max(down, up) : above);
    ASSERT_EQ(std::min(down, up), down == x ? std::min(down, up) : below);
    if (down == x) {
      ASSERT_EQ(above, x);
      ASSERT_EQ(below, x);
    }
  }
}

TEST(Rounding, EveryFloat16RoundTripsAndMidpointsGoToEven) {
  for (std::uint32_t word = 0; word < 0x7C00; ++word) {
    const float x = kernels::f16_decode(static_cast<std::uint16_t>(word));
    const int exponent = static_cast<int>(word >> 10);
    const double mantissa = word & 0x3FF;
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(x, expected);
    ASSERT_EQ(kernels::f16_encode(x), word);
    ASSERT_EQ(kernels::f16_encode(-x), word | 0x8000u);
    if (word == 0x7BFF) continue;
    const float next = kernels::f16_decode(static_cast<std::uint16_t>(word + 1));
    const float middle = 0.5f * (x + next);
    ASSERT_EQ(kernels::f16_encode(middle), word + (word & 1));
    ASSERT_EQ(kernels::f16_encode(std::nextafter(middle, 0.0f)), word);
    ASSERT_EQ(kernels::f16_encode(std::nextafter(middle, 1e6f)), word + 1);
  }
  EXPECT_EQ(kernels::f16_encode(1e6f), 0x7BFF);
  EXPECT_EQ(kernels::f16_encode(-65520.0f), 0xFBFF);
}

}  // namespace
}  // namespace ballast
