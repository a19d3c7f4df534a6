// Who draws random numbers.
#pragma once

#include <cstdint>

namespace ballast {

/// Names one independent source of random numbers: the summary of one head. The position of the
/// token completes the name of a draw, so results do not depend on threads or chunks.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  std::uint32_t head = 0;
  bool operator==(const RandomKey&) const = default;
};

}  // namespace ballast
