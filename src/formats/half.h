// Scalar conversions of floats of 16 and 8 bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ballast {

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// Rounds to nearest even; finite numbers too large become the largest.
inline std::uint16_t float_to_bf16(float x) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  if ((rounded & 0x7fffffff) >= 0x7f800000 && std::isfinite(x)) rounded -= 0x10000;
  return static_cast<std::uint16_t>(rounded >> 16);
}

/// Four bits of exponent, three of fraction, no infinity; all bits set is no number.
inline float e4m3_to_float(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15, fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? static_cast<float>(fraction) * 0x1p-9f
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

inline float f16_to_float(std::uint16_t bits) {
  std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  std::uint32_t exponent = (bits >> 10) & 31;
  std::uint32_t fraction = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) {
    float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/// Rounds to nearest even; finite numbers too large become ±65504.
inline std::uint16_t float_to_f16(float x) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(x)) return sign | 0x7e00;
  float magnitude = std::fabs(x);
  if (std::isinf(x)) return sign | 0x7c00;
  if (magnitude >= 65504.0f) return sign | 0x7bff;
  if (magnitude < 0x1p-14f) {
    // Adding 2^23 · 2^-24 aligns the fraction with the last bit, so that the addition rounds.
    float aligned = magnitude + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) & 0x7ff));
  }
  std::uint32_t m = bits & 0x7fffffff;
  m += 0xfff + ((m >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((m >> 13) - (112u << 10)));
}

}  // namespace ballast
