// Simple quantizers: scales from the extremes of each group, then rounding to nearest.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/half.h"
#include "formats/quant.h"

namespace ballast {
namespace {

using Bytes = std::uint8_t*;

/// Stores x as float16 and returns what a reader will see.
float put_f16(Bytes p, float x) {
  std::uint16_t bits = float_to_f16(x);
  std::memcpy(p, &bits, sizeof(bits));
  return f16_to_float(bits);
}

/// x / step to the nearest integer within [low, high].
int quantum(float x, float step, int low, int high) {
  if (step == 0.0f) return std::clamp(0, low, high);
  float q = std::nearbyint(x / step);
  if (!(q > static_cast<float>(low))) return low;
  return q > static_cast<float>(high) ? high : static_cast<int>(q);
}

/// The number of greatest magnitude, with its sign. Signed types have one more step below zero
/// than above: dividing by the lowest step puts that extreme exactly on it.
float extreme(const float* x, int n) {
  float most = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(most)) most = x[i];
  }
  return most;
}

/// Lowest and highest number; the types with offsets of K blocks cannot have the lowest above 0.
struct Range {
  float low, high;
};
Range range_of(const float* x, int n) {
  auto [low, high] = std::minmax_element(x, x + n);
  return {*low, *high};
}

void put_nibble(Bytes p, int i, int q) {
  p[i % 16] |= static_cast<std::uint8_t>(i < 16 ? q : q << 4);
}

void put_two_bits(Bytes p, int i, int q) {
  p[i / 128 * 32 + i % 32] |= static_cast<std::uint8_t>(q << (i / 32 % 4 * 2));
}

void put_four_bits(Bytes p, int i, int q) {
  p[i / 64 * 32 + i % 32] |= static_cast<std::uint8_t>(q << (i / 32 % 2 * 4));
}

void put_six_bits(Bytes p, int g, int scale, int offset) {
  if (g < 4) {
    p[g] |= static_cast<std::uint8_t>(scale);
    p[g + 4] |= static_cast<std::uint8_t>(offset);
  } else {
    p[g + 4] |= static_cast<std::uint8_t>((scale & 15) | (offset & 15) << 4);
    p[g - 4] |= static_cast<std::uint8_t>(scale >> 4 << 6);
    p[g] |= static_cast<std::uint8_t>(offset >> 4 << 6);
  }
}

/// Q4_0 and Q5_0 (offset = false), Q4_1 and Q5_1 (offset = true). Layout: scale, offset, high bits
/// of Q5, 16 bytes of low halves.
void encode_simple(const float* x, Bytes block, int bits, bool offset) {
  int levels = 1 << bits;
  Bytes high = block + (offset ? 4 : 2);
  Bytes low = high + (bits == 5 ? 4 : 0);
  std::memset(block, 0, static_cast<std::size_t>(low + 16 - block));
  float step, origin;
  if (offset) {
    Range r = range_of(x, 32);
    float n = static_cast<float>(levels - 1);
    step = put_f16(block, r.high / n - r.low / n);
    origin = put_f16(block + 2, r.low);
  } else {
    step = put_f16(block, extreme(x, 32) / static_cast<float>(-levels / 2));
    origin = -step * static_cast<float>(levels / 2);
  }
  for (int i = 0; i < 32; ++i) {
    int q = quantum(x[i] - origin, step, 0, levels - 1);
    put_nibble(low, i, q & 15);
    if (bits == 5) high[i / 8] |= static_cast<std::uint8_t>((q >> 4) << (i % 8));
  }
}

/// Scale and offset of each group of a K block with offsets, and their common float16 scales.
/// `scale_levels` is the largest scale that fits; numbers take 0…levels.
struct GroupScales {
  float d, dmin;
  int scale[16], offset[16];
};
GroupScales group_scales(const float* x, int groups, int levels, int scale_levels, Bytes d_at,
                         Bytes dmin_at) {
  float scales[16], offsets[16];
  int n = 256 / groups;
  for (int g = 0; g < groups; ++g) {
    Range r = range_of(x + g * n, n);
    float low = std::min(r.low, 0.0f);
    float top = static_cast<float>(levels);
    scales[g] = std::max(r.high, 0.0f) / top - low / top;
    offsets[g] = -low;
  }
  GroupScales s;
  float top = static_cast<float>(scale_levels);
  s.d = put_f16(d_at, *std::max_element(scales, scales + groups) / top);
  s.dmin = put_f16(dmin_at, *std::max_element(offsets, offsets + groups) / top);
  for (int g = 0; g < groups; ++g) {
    s.scale[g] = quantum(scales[g], s.d, 0, scale_levels);
    s.offset[g] = quantum(offsets[g], s.dmin, 0, scale_levels);
  }
  return s;
}

/// Q4_K and Q5_K: scale, scale of offsets, 12 bytes of group scales, high bits of Q5, low halves.
void encode_four_or_five_k(const float* x, Bytes block, int bits) {
  Bytes high = block + 16;
  Bytes low = high + (bits == 5 ? 32 : 0);
  std::memset(block, 0, static_cast<std::size_t>(low + 128 - block));
  int levels = (1 << bits) - 1;
  GroupScales s = group_scales(x, 8, levels, 63, block, block + 2);
  for (int g = 0; g < 8; ++g) {
    put_six_bits(block + 4, g, s.scale[g], s.offset[g]);
    float step = s.d * static_cast<float>(s.scale[g]);
    float offset = s.dmin * static_cast<float>(s.offset[g]);
    for (int i = 32 * g; i < 32 * g + 32; ++i) {
      int q = quantum(x[i] + offset, step, 0, levels);
      put_four_bits(low, i, q & 15);
      if (bits == 5) high[i % 32] |= static_cast<std::uint8_t>((q >> 4) << g);
    }
  }
}

/// Integer scales of the 16 groups of Q3_K and Q6_K, whose numbers go down to `lowest`.
float signed_scales(const float* x, int lowest, int scale_lowest, int* scale, Bytes d_at) {
  float scales[16];
  for (int g = 0; g < 16; ++g) scales[g] = extreme(x + 16 * g, 16) / static_cast<float>(lowest);
  float d = put_f16(d_at, extreme(scales, 16) / static_cast<float>(scale_lowest));
  for (int g = 0; g < 16; ++g) scale[g] = quantum(scales[g], d, scale_lowest, -scale_lowest - 1);
  return d;
}

}  // namespace

void encode_q4_0(const float* numbers, Bytes block) { encode_simple(numbers, block, 4, false); }
void encode_q4_1(const float* numbers, Bytes block) { encode_simple(numbers, block, 4, true); }
void encode_q5_0(const float* numbers, Bytes block) { encode_simple(numbers, block, 5, false); }
void encode_q5_1(const float* numbers, Bytes block) { encode_simple(numbers, block, 5, true); }

void encode_q8_0(const float* numbers, Bytes block) {
  float step = put_f16(block, std::fabs(extreme(numbers, 32)) / 127.0f);
  for (int i = 0; i < 32; ++i) {
    block[2 + i] = static_cast<std::uint8_t>(quantum(numbers[i], step, -127, 127));
  }
}

void encode_q2_k(const float* numbers, Bytes block) {
  std::memset(block, 0, 84);
  GroupScales s = group_scales(numbers, 16, 3, 15, block + 80, block + 82);
  for (int g = 0; g < 16; ++g) {
    block[g] = static_cast<std::uint8_t>(s.scale[g] | s.offset[g] << 4);
    float step = s.d * static_cast<float>(s.scale[g]);
    float offset = s.dmin * static_cast<float>(s.offset[g]);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      put_two_bits(block + 16, i, quantum(numbers[i] + offset, step, 0, 3));
    }
  }
}

void encode_q3_k(const float* numbers, Bytes block) {
  std::memset(block, 0, 110);
  Bytes high = block, low = block + 32, scales = block + 96;
  int scale[16];
  float d = signed_scales(numbers, -4, -32, scale, block + 108);
  for (int g = 0; g < 16; ++g) {
    int stored = scale[g] + 32;
    scales[g % 8] |= static_cast<std::uint8_t>(g < 8 ? stored & 15 : (stored & 15) << 4);
    scales[8 + g % 4] |= static_cast<std::uint8_t>(stored >> 4 << (g / 4 * 2));
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      int q = quantum(numbers[i], d * static_cast<float>(scale[g]), -4, 3) + 4;
      put_two_bits(low, i, q & 3);
      high[i % 32] |= static_cast<std::uint8_t>((q >> 2) << (i / 32));
    }
  }
}

void encode_q4_k(const float* numbers, Bytes block) { encode_four_or_five_k(numbers, block, 4); }
void encode_q5_k(const float* numbers, Bytes block) { encode_four_or_five_k(numbers, block, 5); }

void encode_q6_k(const float* numbers, Bytes block) {
  std::memset(block, 0, 210);
  int scale[16];
  float d = signed_scales(numbers, -32, -128, scale, block + 208);
  for (int g = 0; g < 16; ++g) {
    block[192 + g] = static_cast<std::uint8_t>(scale[g]);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      int q = quantum(numbers[i], d * static_cast<float>(scale[g]), -32, 31) + 32;
      block[i / 128 * 64 + i % 64] |= static_cast<std::uint8_t>((q & 15) << (i / 64 % 2 * 4));
      put_two_bits(block + 128, i, q >> 4);
    }
  }
}

void encode_iq4_nl(const float* numbers, Bytes block) {
  std::memset(block, 0, 18);
  float step = put_f16(block, extreme(numbers, 32) / -127.0f);
  for (int i = 0; i < 32; ++i) {
    float x = step == 0.0f ? 0.0f : numbers[i] / step;
    auto nearest = std::min_element(kIq4Values, kIq4Values + 16, [x](int a, int b) {
      return std::fabs(x - static_cast<float>(a)) < std::fabs(x - static_cast<float>(b));
    });
    put_nibble(block + 2, i, static_cast<int>(nearest - kIq4Values));
  }
}

}  // namespace ballast
