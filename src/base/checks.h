// Checks of elements that come from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ballast {

/// Index of the first element with all bits of `exponent` set, or `count`. Bits: the unsigned
/// integer of the elements' size.
template <typename Bits>
std::size_t first_not_finite(const void* row, std::size_t count, Bits exponent) {
  // A loop over single elements takes as long as attention over a short cache.
  constexpr std::size_t kLanes = 16 / sizeof(Bits);
  typedef Bits Vector __attribute__((vector_size(16)));
  const auto* bytes = static_cast<const unsigned char*>(row);
  const Vector mask = Vector{} + exponent;
  auto found = Vector{} == mask;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vector x;
    std::memcpy(&x, bytes + i * sizeof(Bits), sizeof(x));
    found |= (x & mask) == mask;
  }
  bool any = false;
  for (std::size_t lane = 0; lane < kLanes; ++lane) any |= found[lane] != 0;
  for (i = any ? 0 : i; i < count; ++i) {
    Bits x;
    std::memcpy(&x, bytes + i * sizeof(Bits), sizeof(x));
    if ((x & exponent) == exponent) return i;
  }
  return count;
}

/// Index of the first NaN or infinity, or row.size().
inline std::size_t first_not_finite(std::span<const float> row) {
  return first_not_finite<std::uint32_t>(row.data(), row.size(), 0x7f800000);
}

}  // namespace ballast
