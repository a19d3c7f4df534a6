// Rotary position embedding (Su et al. 2021).
#pragma once

#include <vector>

namespace ballast {

/// How the first 2 · frequencies.size() numbers of a head turn with the position.
struct Rotary {
  std::vector<float> frequencies;  ///< radians per position; empty: nothing turns
  float magnitude = 1.0f;          ///< cosines and sines are multiplied by this
  bool pairs = false;  ///< numbers 2i and 2i + 1 turn together; else i and i + frequencies.size()
  bool operator==(const Rotary&) const = default;
};

}  // namespace ballast
