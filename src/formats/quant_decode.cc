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

/// Number i of 32 four-bit ones: the low halves of 16 bytes, then the high halves.
int nibble(Bytes p, int i) { return i < 16 ? p[i] & 15 : p[i - 16] >> 4; }

int bit(Bytes p, int i) { return (p[i / 8] >> (i % 8)) & 1; }

/// Number i of 256 two-bit ones: each half block of 128 is four layers over 32 bytes.
int two_bits(Bytes p, int i) { return (p[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3; }

/// Number i of 256 four-bit ones: groups of 32, in pairs over the same 32 bytes.
int four_bits(Bytes p, int i) { return (p[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15; }

/// Scale and offset of group g of 8, six bits each, in 12 bytes: the first four groups lie plainly
/// in the low six bits of bytes 0-7; the others have four bits in bytes 8-11 and two on top of 0-7.
void six_bits(Bytes p, int g, int& scale, int& offset) {
  if (g < 4) {
    scale = p[g] & 63;
    offset = p[g + 4] & 63;
  } else {
    scale = (p[g + 4] & 15) | (p[g - 4] >> 6 << 4);
    offset = (p[g + 4] >> 4) | (p[g] >> 6 << 4);
  }
}

}  // namespace

void decode_q4_0(Bytes block, float* out) {
  float d = f16_at(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(nibble(block + 2, i) - 8) * d;
}

void decode_q4_1(Bytes block, float* out) {
  float d = f16_at(block), m = f16_at(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(nibble(block + 4, i)) * d + m;
}

void decode_q5_0(Bytes block, float* out) {
  float d = f16_at(block);
  for (int i = 0; i < 32; ++i) {
    int q = nibble(block + 6, i) | (bit(block + 2, i) << 4);
    out[i] = static_cast<float>(q - 16) * d;
  }
}

void decode_q5_1(Bytes block, float* out) {
  float d = f16_at(block), m = f16_at(block + 2);
  for (int i = 0; i < 32; ++i) {
    int q = nibble(block + 8, i) | (bit(block + 4, i) << 4);
    out[i] = static_cast<float>(q) * d + m;
  }
}

void decode_q8_0(Bytes block, float* out) {
  float d = f16_at(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<std::int8_t>(block[2 + i])) * d;
  }
}

void decode_q2_k(Bytes block, float* out) {
  Bytes scales = block, qs = block + 16;
  float d = f16_at(block + 80), dmin = f16_at(block + 82);
  for (int g = 0; g < 16; ++g) {
    float scale = d * static_cast<float>(scales[g] & 15);
    float offset = dmin * static_cast<float>(scales[g] >> 4);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      out[i] = scale * static_cast<float>(two_bits(qs, i)) - offset;
    }
  }
}

void decode_q3_k(Bytes block, float* out) {
  Bytes high = block, qs = block + 32, scales = block + 96;
  float d = f16_at(block + 108);
  for (int g = 0; g < 16; ++g) {
    int low_bits = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    int high_bits = (scales[8 + g % 4] >> (g / 4 * 2)) & 3;
    float scale = d * static_cast<float>((low_bits | (high_bits << 4)) - 32);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      int q = two_bits(qs, i) | (((high[i % 32] >> (i / 32)) & 1) << 2);
      out[i] = scale * static_cast<float>(q - 4);
    }
  }
}

void decode_q4_k(Bytes block, float* out) {
  float d = f16_at(block), dmin = f16_at(block + 2);
  for (int g = 0; g < 8; ++g) {
    int s, m;
    six_bits(block + 4, g, s, m);
    float scale = d * static_cast<float>(s), offset = dmin * static_cast<float>(m);
    for (int i = 32 * g; i < 32 * g + 32; ++i) {
      out[i] = scale * static_cast<float>(four_bits(block + 16, i)) - offset;
    }
  }
}

void decode_q5_k(Bytes block, float* out) {
  float d = f16_at(block), dmin = f16_at(block + 2);
  Bytes high = block + 16, qs = block + 48;
  for (int g = 0; g < 8; ++g) {
    int s, m;
    six_bits(block + 4, g, s, m);
    float scale = d * static_cast<float>(s), offset = dmin * static_cast<float>(m);
    for (int i = 32 * g; i < 32 * g + 32; ++i) {
      int q = four_bits(qs, i) | (((high[i % 32] >> g) & 1) << 4);
      out[i] = scale * static_cast<float>(q) - offset;
    }
  }
}

void decode_q6_k(Bytes block, float* out) {
  Bytes low = block, high = block + 128, scales = block + 192;
  float d = f16_at(block + 208);
  for (int g = 0; g < 16; ++g) {
    float scale = d * static_cast<float>(static_cast<std::int8_t>(scales[g]));
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      // Each half block: 64 bytes of low halves, then the same 64 bytes' high halves.
      int low_bits = (low[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4)) & 15;
      out[i] = scale * static_cast<float>((low_bits | (two_bits(high, i) << 4)) - 32);
    }
  }
}

void decode_iq4_nl(Bytes block, float* out) {
  float d = f16_at(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(kIq4Values[nibble(block + 2, i)]);
  }
}

const BlockCodec& block_codec(TensorType type) {
  // In the order of TensorType from q4_0.
  static constexpr BlockCodec kCodecs[] = {
      {decode_q4_0, encode_q4_0}, {decode_q4_1, encode_q4_1},    {decode_q5_0, encode_q5_0},
      {decode_q5_1, encode_q5_1}, {decode_q8_0, encode_q8_0},    {decode_q2_k, encode_q2_k},
      {decode_q3_k, encode_q3_k}, {decode_q4_k, encode_q4_k},    {decode_q5_k, encode_q5_k},
      {decode_q6_k, encode_q6_k}, {decode_iq4_nl, encode_iq4_nl}};
  return kCodecs[static_cast<int>(type) - static_cast<int>(TensorType::q4_0)];
}

}  // namespace ballast
