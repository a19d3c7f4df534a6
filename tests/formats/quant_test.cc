#include "formats/quant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include <zlib.h>

#include "ballast/engine/tensor.h"
#include "ballast/error.h"

namespace ballast {
namespace {

constexpr TensorType kQuantized[] = {TensorType::q4_0, TensorType::q4_1,   TensorType::q5_0,
                                     TensorType::q5_1, TensorType::q8_0,   TensorType::q2_k,
                                     TensorType::q3_k, TensorType::q4_k,   TensorType::q5_k,
                                     TensorType::q6_k, TensorType::iq4_nl, TensorType::fp4};

using Block = std::vector<std::uint8_t>;

double half(const Block& b, std::size_t at) {
  int bits = b[at] | b[at + 1] << 8;
  int exponent = bits >> 10 & 31;
  if (exponent == 31) return NAN;
  double fraction = (bits & 1023) / 1024.0;
  double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// The block as the published structures describe it, walked in storage order: for every byte,
/// which numbers of the block do its bits belong to? (The library goes the other way.)
std::vector<double> naive(TensorType type, const Block& b) {
  std::vector<int> q(block_size(type), 0);
  auto simple_nibbles = [&](std::size_t at) {
    for (std::size_t j = 0; j < 16; ++j) {
      q[j] += b[at + j] % 16;
      q[j + 16] += b[at + j] / 16;
    }
  };
  auto simple_fifth_bits = [&](std::size_t at) {
    std::uint32_t word = 0;
    for (std::size_t j = 4; j-- > 0;) word = word * 256 + b[at + j];
    for (std::size_t j = 0; j < 32; ++j) q[j] += static_cast<int>(word >> j & 1) * 16;
  };
  auto layered = [&](std::size_t at, std::size_t bytes, int bits, int weight, std::size_t run) {
    // `run` bytes serve `8 / bits` runs of numbers, lowest bits first.
    std::size_t next = 0;
    for (std::size_t begin = 0; begin < bytes; begin += run) {
      for (int shift = 0; shift < 8; shift += bits) {
        for (std::size_t l = 0; l < run; ++l) {
          q[next++] += (b[at + begin + l] >> shift & ((1 << bits) - 1)) * weight;
        }
      }
    }
  };
  std::vector<double> out(q.size());
  auto finish = [&](std::size_t group, auto scale, auto offset) {
    for (std::size_t i = 0; i < q.size(); ++i) {
      out[i] = scale(i / group) * q[i] + offset(i / group);
    }
    return out;
  };
  auto constant = [](double x) { return [x](std::size_t) { return x; }; };
  double d = half(b, 0);
  switch (type) {
    case TensorType::q4_0:
      simple_nibbles(2);
      return finish(32, constant(d), constant(-8 * d));
    case TensorType::q4_1:
      simple_nibbles(4);
      return finish(32, constant(d), constant(half(b, 2)));
    case TensorType::q5_0:
      simple_nibbles(6);
      simple_fifth_bits(2);
      return finish(32, constant(d), constant(-16 * d));
    case TensorType::q5_1:
      simple_nibbles(8);
      simple_fifth_bits(4);
      return finish(32, constant(d), constant(half(b, 2)));
    case TensorType::q8_0:
      for (std::size_t j = 0; j < 32; ++j) q[j] = b[2 + j] < 128 ? b[2 + j] : b[2 + j] - 256;
      return finish(32, constant(d), constant(0));
    case TensorType::iq4_nl: {
      simple_nibbles(2);
      const int table[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                           1,    13,   25,  38,  53,  69,  89,  113};
      for (int& x : q) x = table[x];
      return finish(32, constant(d), constant(0));
    }
    case TensorType::fp4: {
      simple_nibbles(2);
      for (int& x : q) {
        const int exponent = x / 2 % 4, mantissa = x % 2;  // E2M1, doubled
        const int size = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
        x = x < 8 ? size : -size;
      }
      return finish(32, constant(d), constant(0));
    }
    case TensorType::q2_k: {
      layered(16, 64, 2, 1, 32);
      return finish(
          16, [&](std::size_t g) { return half(b, 80) * (b[g] % 16); },
          [&](std::size_t g) { return -half(b, 82) * (b[g] / 16); });
    }
    case TensorType::q3_k: {
      layered(32, 64, 2, 1, 32);
      layered(0, 32, 1, 4, 32);
      int scales[16];
      for (std::size_t j = 0; j < 8; ++j) {
        scales[j] = b[96 + j] % 16;
        scales[j + 8] = b[96 + j] / 16;
      }
      for (std::size_t j = 0; j < 4; ++j) {
        for (std::size_t k = 0; k < 4; ++k) scales[4 * k + j] += (b[104 + j] >> 2 * k & 3) * 16;
      }
      auto scale = [&](std::size_t g) { return half(b, 108) * (scales[g] - 32); };
      return finish(16, scale, [&](std::size_t g) { return -4 * scale(g); });
    }
    case TensorType::q4_k:
    case TensorType::q5_k: {
      layered(type == TensorType::q4_k ? 16 : 48, 128, 4, 1, 32);
      if (type == TensorType::q5_k) layered(16, 32, 1, 16, 32);
      int scales[8], offsets[8];
      for (std::size_t j = 0; j < 4; ++j) {
        scales[j] = b[4 + j] % 64;
        scales[j + 4] = b[12 + j] % 16 + b[4 + j] / 64 * 16;
        offsets[j] = b[8 + j] % 64;
        offsets[j + 4] = b[12 + j] / 16 + b[8 + j] / 64 * 16;
      }
      return finish(
          32, [&](std::size_t g) { return d * scales[g]; },
          [&](std::size_t g) { return -half(b, 2) * offsets[g]; });
    }
    case TensorType::q6_k: {
      layered(0, 128, 4, 1, 64);
      layered(128, 64, 2, 16, 32);
      auto scale = [&](std::size_t g) {
        return half(b, 208) * (b[192 + g] < 128 ? b[192 + g] : b[192 + g] - 256);
      };
      return finish(16, scale, [&](std::size_t g) { return -32 * scale(g); });
    }
    default:
      break;
  }
  ADD_FAILURE() << "no such type";
  return out;
}

class Quant : public ::testing::TestWithParam<TensorType> {};

INSTANTIATE_TEST_SUITE_P(Types, Quant, ::testing::ValuesIn(kQuantized),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Quant, DecodesRandomBlocksAsDescribed) {
  TensorType type = GetParam();
  std::mt19937 rng(3);
  for (int trial = 0; trial < 200; ++trial) {
    Block block(block_bytes(type));
    for (std::uint8_t& byte : block) byte = static_cast<std::uint8_t>(rng());
    std::vector<double> expected = naive(type, block);
    auto finite = [](double x) { return std::isfinite(x); };
    if (!std::all_of(expected.begin(), expected.end(), finite)) continue;
    std::vector<float> got(block_size(type));
    decode(type, std::as_bytes(std::span(block)), got);
    double largest = 0;
    for (double x : expected) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), expected[i], 1e-6 * largest) << i;
    }
  }
}

/// Steps between the largest and smallest number of a block, at the worst.
double steps(TensorType type) {
  switch (type) {
    case TensorType::q2_k:
      return 3;
    case TensorType::q3_k:
      return 7;
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q4_k:
      return 15;
    case TensorType::iq4_nl:
      return 8;  // uneven: the widest gap is 24 of 240, and half an end
    case TensorType::fp4:
      return 6;  // uneven: the widest gap is 4 of 24
    case TensorType::q8_0:
      return 254;
    case TensorType::q6_k:
      return 63;
    default:
      return 31;
  }
}

TEST_P(Quant, EncodesWithinHalfAStep) {
  TensorType type = GetParam();
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  std::size_t n = 3 * block_size(type);
  for (float magnitude : {1e-2f, 1.0f, 300.0f}) {
    std::vector<float> numbers(n), got(n);
    for (float& x : numbers) x = magnitude * normal(rng);
    std::vector<std::byte> bytes = encode(type, numbers);
    ASSERT_EQ(bytes.size(), 3 * block_bytes(type));
    decode(type, bytes, got);
    float largest = 0;
    double squares = 0, errors = 0;
    for (std::size_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::abs(numbers[i]));
      squares += std::pow(static_cast<double>(numbers[i]), 2);
      errors += std::pow(static_cast<double>(numbers[i] - got[i]), 2);
    }
    // Signed types lose up to a whole step at the far end; group scales are rounded too.
    double step = 2.0 * static_cast<double>(largest) / steps(type);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(numbers[i]), 1.3 * step) << i;
    }
    EXPECT_LT(std::sqrt(errors / squares), 2.0 / steps(type)) << magnitude;
  }
}

TEST_P(Quant, HandlesExtremeNumbers) {
  TensorType type = GetParam();
  std::size_t n = block_size(type);
  std::vector<float> numbers(n, 0.0f), got(n, 7.0f);
  decode(type, encode(type, numbers), got);
  EXPECT_THAT(got, ::testing::Each(0.0f));
  for (float x : {1e-30f, -1e-7f, 1e30f, -3e38f}) {
    std::fill(numbers.begin(), numbers.end(), x);
    numbers[n / 2] = -x;
    decode(type, encode(type, numbers), got);
    for (float y : got) ASSERT_TRUE(std::isfinite(y)) << x;
  }
  numbers[0] = NAN;  // not promised to mean anything, but must not be undefined behaviour
  numbers[1] = INFINITY;
  (void)encode(type, numbers);
  EXPECT_THROW((void)encode(type, std::span(numbers).first(n - 1)), Error);
}

// Patterns worked out by hand from the layout.
TEST(QuantByHand, Q4KScalesOfTheUpperGroups) {
  Block block(144, 0);
  block[0] = 0x00, block[1] = 0x3c;  // d = 1
  block[2] = 0x00, block[3] = 0x38;  // dmin = 0.5
  block[4] = 0xc0 | 5;               // group 0: scale 5; group 4: upper scale bits 3
  block[8] = 0x80 | 6;               // group 0: offset 6; group 4: upper offset bits 2
  block[12] = 0x21;                  // group 4: lower scale bits 1, lower offset bits 2
  block[16] = 0x0f;                  // number 0 is 15
  block[16 + 64 + 31] = 0x03;        // number 128 + 31 (group 4) is 3
  std::vector<float> out(256);
  decode(TensorType::q4_k, std::as_bytes(std::span(block)), out);
  EXPECT_EQ(out[0], 15.0f * 5.0f - 0.5f * 6.0f);
  EXPECT_EQ(out[128 + 31], 3.0f * (3 * 16 + 1) - 0.5f * (2 * 16 + 2));
  EXPECT_EQ(out[128], -0.5f * (2 * 16 + 2));
}

TEST(QuantByHand, Q6KLastNumber) {
  Block block(210, 0);
  block[127] = 0xa0;                     // high half of byte 127: number 255, lower bits 10
  block[191] = 0xc0;                     // its upper bits 3
  block[207] = 0xfe;                     // scale of group 15: -2
  block[208] = 0x00, block[209] = 0x34;  // d = 0.25
  std::vector<float> out(256);
  decode(TensorType::q6_k, std::as_bytes(std::span(block)), out);
  EXPECT_EQ(out[255], 0.25f * -2.0f * (3 * 16 + 10 - 32));
}

// Types that are converted when a model is loaded. The CRC-32 is of gguf-py's values for the same
// bytes: tests/formats/peer_types.py.
TEST(Quant, DecodesAsGgufPyDoesToTheBit) {
  const struct {
    TensorType type;
    std::uint32_t crc;
  } expected[] = {
      {TensorType::iq4_xs, 0xf0292123}, {TensorType::iq3_xxs, 0xb0e833c8},
      {TensorType::iq3_s, 0xe21fe407},  {TensorType::iq2_xxs, 0x345ce96c},
      {TensorType::iq2_xs, 0x5ede5b80}, {TensorType::iq2_s, 0xc3281998},
      {TensorType::iq1_s, 0x2a0ccf4d},  {TensorType::iq1_m, 0x2bccc2e9},
      {TensorType::mxfp4, 0x328f3c65},  {TensorType::tq1_0, 0x5f321d5e},
      {TensorType::tq2_0, 0xedc59afa},
  };
  for (const auto& [type, crc] : expected) {
    std::uint32_t x = 1;
    std::vector<std::byte> bytes(64 * block_bytes(type));
    for (std::byte& byte : bytes) {
      x = x * 1664525 + 1013904223;
      byte = static_cast<std::byte>(x >> 24);
    }
    std::vector<float> out(64 * block_size(type));
    decode(type, bytes, out);
    for (std::size_t b = 0; b < 64; ++b) {
      const auto block = std::span(out).subspan(b * block_size(type), block_size(type));
      // Of a scale that is no number.
      if (!std::ranges::all_of(block, [](float y) { return std::isfinite(y); })) {
        std::ranges::fill(block, 0.0f);
      }
    }
    EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(out.data()),
                    static_cast<uInt>(out.size() * sizeof(float))),
              crc)
        << to_string(type);
    EXPECT_THROW(encode(type, out), Error);
  }
}

}  // namespace
}  // namespace ballast
