// Decoders of the types that are decoded when a model is loaded: see loaded_as().
#include <bit>
#include <cstring>

#include "formats/half.h"
#include "formats/quant.h"
#include "formats/quant_grids.h"

namespace ballast {
namespace {

using Bytes = const std::uint8_t*;

template <typename T>
T load(Bytes p) {
  T x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}

float f16_at(Bytes p) { return f16_to_float(load<std::uint16_t>(p)); }

constexpr float kIq2Values[4] = {8, 25, 43, 0};
constexpr float kIq3XxsValues[16] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kIq3SValues[16] = {1, 3, 5, 7, 9, 11, 13, 15};

/// Elements 0 to 7 of a point of a grid of two bits, times d; bit i of `signs`: i is negative.
void put_two_bits(std::uint16_t point, float d, int signs, float* out) {
  for (int i = 0; i < 8; ++i) {
    const float x = d * kIq2Values[(point >> (2 * i)) & 3];
    out[i] = (signs >> i) & 1 ? -x : x;
  }
}

void put_four_bits(std::uint16_t point, const float* values, float d, int signs, float* out) {
  for (int i = 0; i < 4; ++i) {
    const float x = d * values[(point >> (4 * i)) & 15];
    out[i] = (signs >> i) & 1 ? -x : x;
  }
}

/// Seven signs and an eighth that makes the number of negative ones even.
int even_signs(std::uint32_t seven) {
  return static_cast<int>(seven | ((std::popcount(seven) & 1u) << 7));
}

/// Of IQ1: eight elements of -1, 0 or 1, moved by an eighth.
void put_ternary(int index, float d, bool down, float* out) {
  for (int i = 0; i < 8; ++i) {
    const int x = ((quant::kIq1Grid[index] >> (2 * i)) & 3) - 1;
    out[i] = d * (static_cast<float>(x) + (down ? -0.125f : 0.125f));
  }
}

int nibble(Bytes p, int i) { return (p[i / 2] >> (i % 2 * 4)) & 15; }

float half_scale(float d, int scale, float factor) {
  return d * (0.5f + static_cast<float>(scale)) * factor;
}

/// IQ4_XS: d, two high bits of each scale (2 bytes), four low bits (4 bytes), codes (128 bytes).
int iq4_xs_scale(Bytes block, int g) {
  const int high = (load<std::uint16_t>(block + 2) >> (2 * g)) & 3;
  return (nibble(block + 4, g) | (high << 4)) - 32;
}

}  // namespace

void decode_iq4_xs(Bytes block, float* out) {
  const float d = f16_at(block);
  for (int g = 0; g < 8; ++g) {
    const float dl = d * static_cast<float>(iq4_xs_scale(block, g));
    Bytes codes = block + 8 + 16 * g;
    for (int i = 0; i < 32; ++i) {
      const int code = i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
      out[32 * g + i] = dl * static_cast<float>(quant::kIq4Values[code]);
    }
  }
}

void iq4_nl_of_iq4_xs(Bytes block, std::uint8_t* out) {
  const float d = f16_at(block);
  for (int g = 0; g < 8; ++g, out += quant::kIq4Nl.bytes) {
    const std::uint16_t scale = float_to_f16(d * static_cast<float>(iq4_xs_scale(block, g)));
    std::memcpy(out + quant::kIq4Nl.scale, &scale, sizeof(scale));
    std::memcpy(out + quant::kIq4Nl.codes, block + 8 + 16 * g, 16);
  }
}

void decode_iq2_xxs(Bytes block, float* out) {
  // d; of each 32 elements four indices, and a word of four times seven signs and a scale
  const float d = f16_at(block);
  for (int g = 0; g < 8; ++g) {
    Bytes p = block + 2 + 8 * g;
    const auto word = load<std::uint32_t>(p + 4);
    const float db = half_scale(d, static_cast<int>(word >> 28), 0.25f);
    for (int i = 0; i < 4; ++i) {
      put_two_bits(quant::kIq2XxsGrid[p[i]], db, even_signs((word >> (7 * i)) & 127),
                   out + 32 * g + 8 * i);
    }
  }
}

void decode_iq2_xs(Bytes block, float* out) {
  // d; of each 8 elements nine bits of index and seven signs; scales of 16 elements
  const float d = f16_at(block);
  for (int i = 0; i < 32; ++i) {
    const auto word = load<std::uint16_t>(block + 2 + 2 * i);
    put_two_bits(quant::kIq2XsGrid[word & 511], half_scale(d, nibble(block + 66, i / 2), 0.25f),
                 even_signs(word >> 9), out + 8 * i);
  }
}

void decode_iq2_s(Bytes block, float* out) {
  // d, low bits of the indices (32 bytes), signs (32), two high bits (8), scales (8)
  const float d = f16_at(block);
  for (int i = 0; i < 32; ++i) {
    const int high = (block[66 + i / 4] >> (i % 4 * 2)) & 3;
    put_two_bits(quant::kIq2SGrid[block[2 + i] | (high << 8)],
                 half_scale(d, nibble(block + 74, i / 2), 0.25f), block[34 + i], out + 8 * i);
  }
}

void decode_iq3_xxs(Bytes block, float* out) {
  // d, indices (64 bytes); of each 32 elements a word of four times seven signs and a scale
  const float d = f16_at(block);
  for (int i = 0; i < 64; ++i) {
    const auto word = load<std::uint32_t>(block + 66 + 4 * (i / 8));
    const int signs = even_signs((word >> (7 * (i % 8 / 2))) & 127) >> (i % 2 * 4);
    put_four_bits(quant::kIq3XxsGrid[block[2 + i]], kIq3XxsValues,
                  half_scale(d, static_cast<int>(word >> 28), 0.5f), signs, out + 4 * i);
  }
}

void decode_iq3_s(Bytes block, float* out) {
  // d, low bits of the indices (64 bytes), a high bit (8), signs (32), scales of 32 elements (4)
  const float d = f16_at(block);
  for (int i = 0; i < 64; ++i) {
    const int index = block[2 + i] | (((block[66 + i / 8] >> (i % 8)) & 1) << 8);
    const float db = d * static_cast<float>(1 + 2 * nibble(block + 106, i / 8));
    put_four_bits(quant::kIq3SGrid[index], kIq3SValues, db, block[74 + i / 2] >> (i % 2 * 4),
                  out + 4 * i);
  }
}

void decode_iq1_s(Bytes block, float* out) {
  // d, low bits of the indices (32 bytes); of each 32 elements four times three high bits, a scale
  // and a sign of the move
  const float d = f16_at(block);
  for (int i = 0; i < 32; ++i) {
    const int word = load<std::uint16_t>(block + 34 + 2 * (i / 4));
    const float dl = d * static_cast<float>(2 * ((word >> 12) & 7) + 1);
    const int high = (word >> (i % 4 * 3)) & 7;
    put_ternary(block[2 + i] | (high << 8), dl, (word & 0x8000) != 0, out + 8 * i);
  }
}

void decode_iq1_m(Bytes block, float* out) {
  // low bits of the indices (32 bytes); a nibble each of three high bits and the move's sign (16);
  // four words, each of four scales of 16 elements, and four bits of d on top
  int bits = 0;
  for (int i = 0; i < 4; ++i) bits |= load<std::uint16_t>(block + 48 + 2 * i) >> 12 << (4 * i);
  const float d = f16_to_float(static_cast<std::uint16_t>(bits));
  for (int i = 0; i < 32; ++i) {
    const int scale = (load<std::uint16_t>(block + 48 + 2 * (i / 8)) >> (i / 2 % 4 * 3)) & 7;
    const int high = nibble(block + 32, i);
    put_ternary(block[i] | ((high & 7) << 8), d * static_cast<float>(2 * scale + 1),
                (high & 8) != 0, out + 8 * i);
  }
}

void decode_mxfp4(Bytes block, float* out) {
  // an exponent; codes (16 bytes) of a sign and a number of two bits of exponent and one of
  // mantissa
  const std::uint32_t e = block[0];
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  for (int i = 0; i < 32; ++i) {
    const int code = i < 16 ? block[1 + i] & 15 : block[1 + i - 16] >> 4;
    out[i] = d * static_cast<float>(quant::kFp4Values[code]);
  }
}

bool fp4_of_mxfp4(Bytes block, std::uint8_t* out) {
  const int exponent = int{block[0]} - 128;  // of half the scale, which float16 must have
  if (exponent < -24 || exponent > 15) return false;
  const std::uint16_t scale = exponent < -14 ? static_cast<std::uint16_t>(1 << (exponent + 24))
                                             : static_cast<std::uint16_t>((exponent + 15) << 10);
  std::memcpy(out + quant::kFp4.scale, &scale, sizeof(scale));
  std::memcpy(out + quant::kFp4.codes, block + 1, 16);
  return true;
}

void decode_tq1_0(Bytes block, float* out) {
  // five elements a byte in base 3 (48 bytes: 32 of one order, 16), four a byte (4 bytes); d
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  const float d = f16_at(block + 52);
  const auto put = [&](Bytes p, int bytes, int each, float* to) {
    for (int i = 0; i < each * bytes; ++i) {
      const auto code = static_cast<std::uint8_t>(p[i % bytes] * kPowers[i / bytes]);
      to[i] = d * static_cast<float>(((code * 3) >> 8) - 1);
    }
  };
  put(block, 32, 5, out);
  put(block + 32, 16, 5, out + 160);
  put(block + 48, 4, 4, out + 240);
}

void decode_tq2_0(Bytes block, float* out) {
  // 32 bytes hold 128 elements, two bits above the other (64 bytes); d
  const float d = f16_at(block + 64);
  for (int i = 0; i < 256; ++i) {
    const int code = (block[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
    out[i] = d * static_cast<float>(code - 1);
  }
}

}  // namespace ballast
