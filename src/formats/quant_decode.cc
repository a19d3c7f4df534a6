#include <cstring>

#include "formats/half.h"
#include "formats/quant.h"

namespace ballast {
namespace {

using Bytes = const std::uint8_t*;

float f16_at(Bytes p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return f16_to_float(bits);
}

/// Four-bit code i of 32: the low nibbles of 16 bytes, then the high ones.
int nibble(Bytes p, int i) { return i < 16 ? p[i] & 15 : p[i - 16] >> 4; }

int bit(Bytes p, int i) { return (p[i / 8] >> (i % 8)) & 1; }

/// Two-bit code i of 256: 32 bytes hold each 128, two bits above the other.
int two_bits(Bytes p, int i) { return (p[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3; }

/// Four-bit code i of 256: 32 bytes hold two groups of 32.
int four_bits(Bytes p, int i) { return (p[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15; }

/// Six-bit scale and minimum of group g of 8, in 12 bytes. Groups 0 to 3 use the low six bits of
/// bytes 0 to 7; groups 4 to 7 have four bits in bytes 8 to 11 and two on top of bytes 0 to 7.
void six_bits(Bytes p, int g, int& scale, int& min) {
  if (g < 4) {
    scale = p[g] & 63;
    min = p[g + 4] & 63;
  } else {
    scale = (p[g + 4] & 15) | (p[g - 4] >> 6 << 4);
    min = (p[g + 4] >> 4) | (p[g] >> 6 << 4);
  }
}

}  // namespace

void decode_q4_0(Bytes block, float* out) {
  float d = f16_at(block + quant::kQ4_0.scale);
  for (int i = 0; i < 32; ++i)
    out[i] =
        static_cast<float>(nibble(block + quant::kQ4_0.codes, i) - quant::kQ4_0.zero_point) * d;
}

void decode_q4_1(Bytes block, float* out) {
  float d = f16_at(block + quant::kQ4_1.scale), m = f16_at(block + quant::kQ4_1.min);
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<float>(nibble(block + quant::kQ4_1.codes, i)) * d + m;
}

void decode_q5_0(Bytes block, float* out) {
  float d = f16_at(block + quant::kQ5_0.scale);
  for (int i = 0; i < 32; ++i) {
    int q = nibble(block + quant::kQ5_0.codes, i) | (bit(block + quant::kQ5_0.high_bits, i) << 4);
    out[i] = static_cast<float>(q - quant::kQ5_0.zero_point) * d;
  }
}

void decode_q5_1(Bytes block, float* out) {
  float d = f16_at(block + quant::kQ5_1.scale), m = f16_at(block + quant::kQ5_1.min);
  for (int i = 0; i < 32; ++i) {
    int q = nibble(block + quant::kQ5_1.codes, i) | (bit(block + quant::kQ5_1.high_bits, i) << 4);
    out[i] = static_cast<float>(q) * d + m;
  }
}

void decode_q8_0(Bytes block, float* out) {
  float d = f16_at(block + quant::kQ8_0.scale);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<std::int8_t>(block[quant::kQ8_0.codes + i])) * d;
  }
}

void decode_q2_k(Bytes block, float* out) {
  Bytes scales = block + quant::kQ2_K.group_scales, codes = block + quant::kQ2_K.codes;
  float d = f16_at(block + quant::kQ2_K.scale), dmin = f16_at(block + quant::kQ2_K.min);
  for (int g = 0; g < 16; ++g) {
    float scale = d * static_cast<float>(scales[g] & 15);
    float min = dmin * static_cast<float>(scales[g] >> 4);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      out[i] = scale * static_cast<float>(two_bits(codes, i)) - min;
    }
  }
}

void decode_q3_k(Bytes block, float* out) {
  Bytes high = block + quant::kQ3_K.high_bits, codes = block + quant::kQ3_K.codes,
        scales = block + quant::kQ3_K.group_scales;
  float d = f16_at(block + quant::kQ3_K.scale);
  for (int g = 0; g < 16; ++g) {
    int low_bits = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    int high_bits = (scales[8 + g % 4] >> (g / 4 * 2)) & 3;
    float scale = d * static_cast<float>((low_bits | (high_bits << 4)) - 32);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      int q = two_bits(codes, i) | (((high[i % 32] >> (i / 32)) & 1) << 2);
      out[i] = scale * static_cast<float>(q - quant::kQ3_K.zero_point);
    }
  }
}

void decode_q4_k(Bytes block, float* out) {
  float d = f16_at(block + quant::kQ4_K.scale), dmin = f16_at(block + quant::kQ4_K.min);
  for (int g = 0; g < 8; ++g) {
    int s, m;
    six_bits(block + quant::kQ4_K.group_scales, g, s, m);
    float scale = d * static_cast<float>(s), min = dmin * static_cast<float>(m);
    for (int i = 32 * g; i < 32 * g + 32; ++i) {
      out[i] = scale * static_cast<float>(four_bits(block + quant::kQ4_K.codes, i)) - min;
    }
  }
}

void decode_q5_k(Bytes block, float* out) {
  float d = f16_at(block + quant::kQ5_K.scale), dmin = f16_at(block + quant::kQ5_K.min);
  Bytes high = block + quant::kQ5_K.high_bits, codes = block + quant::kQ5_K.codes;
  for (int g = 0; g < 8; ++g) {
    int s, m;
    six_bits(block + quant::kQ5_K.group_scales, g, s, m);
    float scale = d * static_cast<float>(s), min = dmin * static_cast<float>(m);
    for (int i = 32 * g; i < 32 * g + 32; ++i) {
      int q = four_bits(codes, i) | (((high[i % 32] >> g) & 1) << 4);
      out[i] = scale * static_cast<float>(q) - min;
    }
  }
}

void decode_q6_k(Bytes block, float* out) {
  Bytes low = block + quant::kQ6_K.codes, high = block + quant::kQ6_K.high_bits,
        scales = block + quant::kQ6_K.group_scales;
  float d = f16_at(block + quant::kQ6_K.scale);
  for (int g = 0; g < 16; ++g) {
    float scale = d * static_cast<float>(static_cast<std::int8_t>(scales[g]));
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      // 64 bytes hold each 128: low nibbles, then high nibbles.
      int low_bits = (low[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4)) & 15;
      out[i] = scale *
               static_cast<float>((low_bits | (two_bits(high, i) << 4)) - quant::kQ6_K.zero_point);
    }
  }
}

namespace {

void decode_table(Bytes block, const quant::BlockLayout& layout, const std::int8_t (&values)[16],
                  float* out) {
  const float d = f16_at(block + layout.scale);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(values[nibble(block + layout.codes, i)]);
  }
}

}  // namespace

void decode_iq4_nl(Bytes block, float* out) {
  decode_table(block, quant::kIq4Nl, quant::kIq4Values, out);
}
void decode_fp4(Bytes block, float* out) {
  decode_table(block, quant::kFp4, quant::kFp4Values, out);
}

const BlockCodec& block_codec(TensorType type) {
  // In the order of TensorType from q4_0.
  static constexpr BlockCodec kCodecs[] = {
      {decode_q4_0, encode_q4_0}, {decode_q4_1, encode_q4_1},     {decode_q5_0, encode_q5_0},
      {decode_q5_1, encode_q5_1}, {decode_q8_0, encode_q8_0},     {decode_q2_k, encode_q2_k},
      {decode_q3_k, encode_q3_k}, {decode_q4_k, encode_q4_k},     {decode_q5_k, encode_q5_k},
      {decode_q6_k, encode_q6_k}, {decode_iq4_nl, encode_iq4_nl}, {decode_fp4, encode_fp4},
      {decode_iq4_xs, nullptr},   {decode_iq3_xxs, nullptr},      {decode_iq3_s, nullptr},
      {decode_iq2_xxs, nullptr},  {decode_iq2_xs, nullptr},       {decode_iq2_s, nullptr},
      {decode_iq1_s, nullptr},    {decode_iq1_m, nullptr},        {decode_mxfp4, nullptr},
      {decode_tq1_0, nullptr},    {decode_tq2_0, nullptr}};
  return kCodecs[static_cast<int>(type) - static_cast<int>(TensorType::q4_0)];
}

}  // namespace ballast
