#include "ballast/engine/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ballast/error.h"
#include "formats/half.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The value of a small float format, from its definition.
double value_of(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  double fraction = (bits & ((1 << fraction_bits) - 1)) * std::pow(2.0, -fraction_bits);
  double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * fraction * std::pow(2.0, 1 - bias);
  return sign * (1.0 + fraction) * std::pow(2.0, exponent - bias);
}

TEST(Half, DecodesEveryFiniteNumber) {
  for (std::uint32_t b = 0; b < 0x10000; ++b) {
    auto bits = static_cast<std::uint16_t>(b);
    if ((bits & 0x7c00) != 0x7c00) {
      ASSERT_EQ(static_cast<double>(f16_to_float(bits)), value_of(bits, 5, 10)) << b;
      ASSERT_EQ(float_to_f16(f16_to_float(bits)), bits);
    }
    if ((bits & 0x7f80) != 0x7f80) {
      ASSERT_EQ(static_cast<double>(bf16_to_float(bits)), value_of(bits, 8, 7)) << b;
      ASSERT_EQ(float_to_bf16(bf16_to_float(bits)), bits);
    }
  }
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(NAN))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  EXPECT_EQ(f16_to_float(float_to_f16(-INFINITY)), -INFINITY);
  EXPECT_EQ(bf16_to_float(float_to_bf16(INFINITY)), INFINITY);
}

TEST(Half, RoundsToTheNearestAndSaturates) {
  std::mt19937 rng(2);
  for (int i = 0; i < 100000; ++i) {
    auto x = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
    if (!std::isfinite(x)) continue;
    auto check = [&](std::uint16_t got, int exponent_bits, int fraction_bits, double largest) {
      double distance = std::abs(value_of(got, exponent_bits, fraction_bits) - double{x});
      auto magnitude = static_cast<std::uint16_t>(got & 0x7fff);
      if (std::abs(double{x}) >= largest) {
        EXPECT_EQ(std::abs(value_of(got, exponent_bits, fraction_bits)), largest) << x;
        return;
      }
      for (int step : {-1, 1}) {
        if (magnitude + step < 0) continue;  // past zero
        auto other = static_cast<std::uint16_t>(got + step);
        double theirs = std::abs(value_of(other, exponent_bits, fraction_bits) - double{x});
        EXPECT_LE(distance, theirs) << x;
        if (distance == theirs) {
          EXPECT_EQ(got & 1, 0) << x;
        }
      }
    };
    check(float_to_bf16(x), 8, 7, value_of(0x7f7f, 8, 7));
    check(float_to_f16(x), 5, 10, 65504.0);
    float small = std::ldexp(x, -std::ilogb(x) - 30 + i % 50);  // where float16 lives
    if (std::isfinite(small)) {
      x = small;
      check(float_to_f16(x), 5, 10, 65504.0);
    }
  }
}

TEST(Tensor, ConvertsIntegersAndBooleans) {
  std::vector<float> extremes = {0, -1, 2.5, 3.5, -1e30f, 1e30f};
  auto round_trip = [&](TensorType type) {
    std::vector<float> out(extremes.size());
    decode(type, encode(type, extremes), out);
    return out;
  };
  EXPECT_THAT(round_trip(TensorType::i8), ElementsAre(0, -1, 2, 4, -128, 127));
  EXPECT_THAT(round_trip(TensorType::u8), ElementsAre(0, 0, 2, 4, 0, 255));
  EXPECT_THAT(round_trip(TensorType::i16), ElementsAre(0, -1, 2, 4, -32768, 32767));
  EXPECT_THAT(round_trip(TensorType::u16), ElementsAre(0, 0, 2, 4, 0, 65535));
  EXPECT_THAT(round_trip(TensorType::i32), ElementsAre(0, -1, 2, 4, -0x1p31f, 0x1p31f));
  EXPECT_THAT(round_trip(TensorType::u32), ElementsAre(0, 0, 2, 4, 0, 0x1p32f));
  EXPECT_THAT(round_trip(TensorType::i64), ElementsAre(0, -1, 2, 4, -0x1p63f, 0x1p63f));
  EXPECT_THAT(round_trip(TensorType::u64), ElementsAre(0, 0, 2, 4, 0, 0x1p64f));
  EXPECT_THAT(round_trip(TensorType::boolean), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(round_trip(TensorType::f64), ElementsAre(0, -1, 2.5, 3.5, -1e30f, 1e30f));
}

TEST(Tensor, ReadsUnalignedBytes) {
  std::vector<float> numbers = {1.5f, -2.0f, 1e-30f};
  for (TensorType type : {TensorType::f64, TensorType::f32, TensorType::f16, TensorType::bf16}) {
    std::vector<std::byte> bytes(1);
    for (std::byte b : encode(type, numbers)) bytes.push_back(b);
    std::vector<float> out(2);
    decode(type, std::span(bytes).subspan(1), out);
    EXPECT_THAT(out, ElementsAre(1.5f, -2.0f));
  }
}

TEST(Tensor, ChecksSizes) {
  std::vector<std::byte> seven(7);
  std::vector<float> two(2);
  EXPECT_THAT(error_of([&] { decode(TensorType::f32, seven, two); }), HasSubstr("need 8 bytes"));
  EXPECT_THAT(error_of([&] { encode(TensorType::f32, two, seven); }), HasSubstr("7 bytes"));
  EXPECT_THAT(error_of([] { (void)tensor_bytes(TensorType::f64, std::size_t{1} << 61); }),
              HasSubstr("more bytes than"));
  std::size_t big = std::size_t{1} << 33;
  EXPECT_THROW((void)element_count(std::vector<std::size_t>{big, big}), Error);
  EXPECT_EQ(element_count(std::vector<std::size_t>{big, big, 0}), 0u);
  EXPECT_EQ(element_count({}), 1u);
}

TEST(Tensor, DecodesOneRow) {
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  std::vector<std::byte> bytes = encode(TensorType::f16, numbers);
  TensorView tensor{"t", TensorType::f16, {2, 3}, bytes};
  std::vector<float> row(3);
  decode_row(tensor, 1, row);
  EXPECT_THAT(row, ElementsAre(4, 5, 6));
  EXPECT_THROW(decode_row(tensor, 2, row), Error);
  row.resize(2);
  EXPECT_THROW(decode_row(tensor, 0, row), Error);
}

}  // namespace
}  // namespace ballast
