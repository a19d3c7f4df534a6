// The parameter `heavy`: the part of a summary that goes to accumulated heavy hitters ("with H2"
// in the tables of H2O).
#pragma once

#include <cmath>

#include "ballast/method.h"
#include "ballast/selection.h"

namespace ballast {

inline Parameter heavy_parameter() {
  return {"heavy",
          Parameter::Kind::real,
          "0",
          0,
          1,
          "",
          "fraction of the summary for heavy hitters by accumulated attention; H2O's '+H2': 0.5"};
}

inline bool has_heavy(const Policy& policy) { return policy.real("heavy") > 0; }

/// Entries that the method's own rule chooses; the rest goes to heavy hitters.
inline std::size_t ruled_capacity(const SummarySetup& setup) {
  const double heavy = setup.policy.real("heavy") * static_cast<double>(setup.capacity);
  return setup.capacity - static_cast<std::size_t>(std::llround(heavy));
}

}  // namespace ballast
