// Simple quantizers: each group's scale follows from its extremes; codes are rounded to nearest.
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

/// The element of greatest magnitude, with its sign. Signed codes reach one step further below zero
/// than above: dividing by the lowest code maps this element exactly onto it.
float extreme(const float* x, int n) {
  float most = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(most)) most = x[i];
  }
  return most;
}

/// Lowest and highest element.
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

void put_six_bits(Bytes p, int g, int scale, int min) {
  if (g < 4) {
    p[g] |= static_cast<std::uint8_t>(scale);
    p[g + 4] |= static_cast<std::uint8_t>(min);
  } else {
    p[g + 4] |= static_cast<std::uint8_t>((scale & 15) | (min & 15) << 4);
    p[g - 4] |= static_cast<std::uint8_t>(scale >> 4 << 6);
    p[g] |= static_cast<std::uint8_t>(min >> 4 << 6);
  }
}

void clear(Bytes block, const quant::BlockLayout& layout) {
  std::memset(block, 0, static_cast<std::size_t>(layout.bytes));
}

/// Q4_0, Q4_1, Q5_0 and Q5_1.
void encode_block_32(const float* x, Bytes block, const quant::BlockLayout& layout) {
  const bool five_bits = layout.has_high_bits();
  int levels = five_bits ? 32 : 16;
  clear(block, layout);
  float step, origin;
  if (layout.has_min()) {
    Range r = range_of(x, 32);
    float n = static_cast<float>(levels - 1);
    step = put_f16(block + layout.scale, r.high / n - r.low / n);
    origin = put_f16(block + layout.min, r.low);
  } else {
    step = put_f16(block + layout.scale, extreme(x, 32) / static_cast<float>(-levels / 2));
    origin = -step * static_cast<float>(levels / 2);
  }
  for (int i = 0; i < 32; ++i) {
    int q = quantum(x[i] - origin, step, 0, levels - 1);
    put_nibble(block + layout.codes, i, q & 15);
    if (five_bits) {
      block[layout.high_bits + i / 8] |= static_cast<std::uint8_t>((q >> 4) << (i % 8));
    }
  }
}

/// Integer scale and minimum of each group of a K block, and the float16 scales that they share.
struct GroupScales {
  float d, dmin;
  int scale[16], min[16];
};
/// Codes go from 0 to `levels`, integer scales and minima from 0 to `scale_levels`. Stored minima
/// are subtracted and unsigned: a group whose lowest element exceeds 0 gets minimum 0.
GroupScales group_scales(const float* x, Bytes block, const quant::BlockLayout& layout, int levels,
                         int scale_levels) {
  float scales[16], mins[16];
  int n = layout.group, groups = 256 / n;
  for (int g = 0; g < groups; ++g) {
    Range r = range_of(x + g * n, n);
    float low = std::min(r.low, 0.0f);
    float top = static_cast<float>(levels);
    scales[g] = std::max(r.high, 0.0f) / top - low / top;
    mins[g] = -low;
  }
  GroupScales s;
  float top = static_cast<float>(scale_levels);
  s.d = put_f16(block + layout.scale, *std::max_element(scales, scales + groups) / top);
  s.dmin = put_f16(block + layout.min, *std::max_element(mins, mins + groups) / top);
  for (int g = 0; g < groups; ++g) {
    s.scale[g] = quantum(scales[g], s.d, 0, scale_levels);
    s.min[g] = quantum(mins[g], s.dmin, 0, scale_levels);
  }
  return s;
}

/// Q4_K and Q5_K.
void encode_four_or_five_k(const float* x, Bytes block, const quant::BlockLayout& layout) {
  const bool five_bits = layout.has_high_bits();
  clear(block, layout);
  int levels = five_bits ? 31 : 15;
  GroupScales s = group_scales(x, block, layout, levels, 63);
  for (int g = 0; g < 8; ++g) {
    put_six_bits(block + layout.group_scales, g, s.scale[g], s.min[g]);
    float step = s.d * static_cast<float>(s.scale[g]);
    float min = s.dmin * static_cast<float>(s.min[g]);
    for (int i = 32 * g; i < 32 * g + 32; ++i) {
      int q = quantum(x[i] + min, step, 0, levels);
      put_four_bits(block + layout.codes, i, q & 15);
      if (five_bits) {
        block[layout.high_bits + i % 32] |= static_cast<std::uint8_t>((q >> 4) << g);
      }
    }
  }
}

/// Integer scales of the 16 groups of Q3_K and Q6_K, whose codes reach down to `lowest`.
float signed_scales(const float* x, int lowest, int scale_lowest, int* scale, Bytes d_at) {
  float scales[16];
  for (int g = 0; g < 16; ++g) scales[g] = extreme(x + 16 * g, 16) / static_cast<float>(lowest);
  float d = put_f16(d_at, extreme(scales, 16) / static_cast<float>(scale_lowest));
  for (int g = 0; g < 16; ++g) scale[g] = quantum(scales[g], d, scale_lowest, -scale_lowest - 1);
  return d;
}

}  // namespace

void encode_q4_0(const float* x, Bytes block) { encode_block_32(x, block, quant::kQ4_0); }
void encode_q4_1(const float* x, Bytes block) { encode_block_32(x, block, quant::kQ4_1); }
void encode_q5_0(const float* x, Bytes block) { encode_block_32(x, block, quant::kQ5_0); }
void encode_q5_1(const float* x, Bytes block) { encode_block_32(x, block, quant::kQ5_1); }

void encode_q8_0(const float* x, Bytes block) {
  float step = put_f16(block + quant::kQ8_0.scale, std::fabs(extreme(x, 32)) / 127.0f);
  for (int i = 0; i < 32; ++i) {
    block[quant::kQ8_0.codes + i] = static_cast<std::uint8_t>(quantum(x[i], step, -127, 127));
  }
}

void encode_q2_k(const float* x, Bytes block) {
  clear(block, quant::kQ2_K);
  GroupScales s = group_scales(x, block, quant::kQ2_K, 3, 15);
  for (int g = 0; g < 16; ++g) {
    block[quant::kQ2_K.group_scales + g] = static_cast<std::uint8_t>(s.scale[g] | s.min[g] << 4);
    float step = s.d * static_cast<float>(s.scale[g]);
    float min = s.dmin * static_cast<float>(s.min[g]);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      put_two_bits(block + quant::kQ2_K.codes, i, quantum(x[i] + min, step, 0, 3));
    }
  }
}

void encode_q3_k(const float* x, Bytes block) {
  clear(block, quant::kQ3_K);
  Bytes high = block + quant::kQ3_K.high_bits, low = block + quant::kQ3_K.codes;
  Bytes scales = block + quant::kQ3_K.group_scales;
  int scale[16];
  float d = signed_scales(x, -4, -32, scale, block + quant::kQ3_K.scale);
  for (int g = 0; g < 16; ++g) {
    int stored = scale[g] + 32;
    scales[g % 8] |= static_cast<std::uint8_t>(g < 8 ? stored & 15 : (stored & 15) << 4);
    scales[8 + g % 4] |= static_cast<std::uint8_t>(stored >> 4 << (g / 4 * 2));
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      int q = quantum(x[i], d * static_cast<float>(scale[g]), -4, 3) + 4;
      put_two_bits(low, i, q & 3);
      high[i % 32] |= static_cast<std::uint8_t>((q >> 2) << (i / 32));
    }
  }
}

void encode_q4_k(const float* x, Bytes block) { encode_four_or_five_k(x, block, quant::kQ4_K); }
void encode_q5_k(const float* x, Bytes block) { encode_four_or_five_k(x, block, quant::kQ5_K); }

void encode_q6_k(const float* x, Bytes block) {
  clear(block, quant::kQ6_K);
  int scale[16];
  float d = signed_scales(x, -32, -128, scale, block + quant::kQ6_K.scale);
  for (int g = 0; g < 16; ++g) {
    block[quant::kQ6_K.group_scales + g] = static_cast<std::uint8_t>(scale[g]);
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      int q = quantum(x[i], d * static_cast<float>(scale[g]), -32, 31) + 32;
      block[quant::kQ6_K.codes + i / 128 * 64 + i % 64] |=
          static_cast<std::uint8_t>((q & 15) << (i / 64 % 2 * 4));
      put_two_bits(block + quant::kQ6_K.high_bits, i, q >> 4);
    }
  }
}

namespace {

/// `at_extreme`: the value that the element of the largest magnitude gets.
void encode_table(const float* x, Bytes block, const quant::BlockLayout& layout,
                  const std::int8_t (&values)[16], float at_extreme) {
  clear(block, layout);
  const float step = put_f16(block + layout.scale, extreme(x, 32) / at_extreme);
  for (int i = 0; i < 32; ++i) {
    const float v = step == 0.0f ? 0.0f : x[i] / step;
    const auto* nearest = std::min_element(values, values + 16, [v](int a, int b) {
      return std::fabs(v - static_cast<float>(a)) < std::fabs(v - static_cast<float>(b));
    });
    put_nibble(block + layout.codes, i, static_cast<int>(nearest - values));
  }
}

}  // namespace

void encode_iq4_nl(const float* x, Bytes block) {
  encode_table(x, block, quant::kIq4Nl, quant::kIq4Values, -127.0f);
}
void encode_fp4(const float* x, Bytes block) {
  encode_table(x, block, quant::kFp4, quant::kFp4Values, 12.0f);
}

}  // namespace ballast
