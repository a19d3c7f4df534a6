// Rounds single elements to the storage types.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace ballast::kernels {

inline float bf16_decode(std::uint16_t word) {
  return std::bit_cast<float>(std::uint32_t{word} << 16);
}

/// To nearest, ties to even; finite values beyond the largest bfloat16 saturate to it.
inline std::uint16_t bf16_encode(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & 0x80000000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t rounded = (magnitude + 0x7FFFu + ((magnitude >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((sign >> 16) | std::min(rounded, 0x7F7Fu));
}

/// The smallest bfloat16 that is at least x. |x| at most 3.3e38.
inline std::uint16_t bf16_encode_up(double x) {
  float nearest = static_cast<float>(x);
  if (nearest < x) nearest = std::nextafter(nearest, INFINITY);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  // Truncation rounds toward zero, which is up for negative values only.
  return static_cast<std::uint16_t>((bits + (nearest > 0.0f ? 0xFFFFu : 0u)) >> 16);
}

/// The largest bfloat16 that is at most x. |x| at most 3.3e38.
inline std::uint16_t bf16_encode_down(double x) {
  return static_cast<std::uint16_t>(bf16_encode_up(-x) ^ 0x8000u);
}

/// Decodes finite float16 only: f16_encode() makes no others.
inline float f16_decode(std::uint16_t word) {
  // A multiplication corrects the exponent's bias, for subnormal values too.
  const float magnitude = std::bit_cast<float>(std::uint32_t{word & 0x7FFFu} << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) |
                              (std::uint32_t{word & 0x8000u} << 16));
}

/// To nearest, ties to even, saturating at ±65504.
inline std::uint16_t f16_encode(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = std::min(bits & 0x7FFFFFFFu, std::uint32_t{0x477FE000});  // 65504
  // Subnormal float16 values are multiples of 2^-24, as is every float from 0.5 to 1.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t is_normal = 0u - std::uint32_t{magnitude >= 0x38800000u};  // 2^-14
  return static_cast<std::uint16_t>(sign | (is_normal & normal) | (~is_normal & subnormal));
}

}  // namespace ballast::kernels
