// Counter-based random numbers (Philox, Salmon et al. 2011). Each draw is a function of what it is
// for, so results do not depend on the order, the threads or the chunks in which work is done.
#pragma once

#include <array>
#include <cstdint>

namespace ballast {

/// Names one independent source of random numbers: the summary of one head. The position of the
/// token completes the name of a draw.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  std::uint32_t head = 0;
  bool operator==(const RandomKey&) const = default;
};

/// 128 random bits for the draw `index` of purpose `stream` at `position` in the text. A method
/// numbers its purposes as it likes; draws of different purposes are independent.
std::array<std::uint32_t, 4> random_bits(const RandomKey& key, std::uint64_t position,
                                         std::uint32_t stream = 0, std::uint32_t index = 0);

/// Uniform in [0, 1), with 53 bits: bits[0] and bits[1] of random_bits().
double random_unit(const RandomKey& key, std::uint64_t position, std::uint32_t stream = 0,
                   std::uint32_t index = 0);

/// Uniform in [0, 1), with 53 of these 64 bits.
inline double to_unit(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 21) ^ (low >> 11)) * 0x1p-53;
}

}  // namespace ballast
