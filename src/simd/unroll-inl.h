// Included within a region of target attributes, which what it calls has to share.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "simd/inline.h"

namespace ballast {

/// action(0) … action(N − 1), of constants: so arrays of vectors stay in registers.
template <std::size_t N, typename Action>
BALLAST_INLINE void unroll(const Action& action) {
  [&]<std::size_t... I>(std::index_sequence<I...>) BALLAST_INLINE_LAMBDA {
    (action(std::integral_constant<std::size_t, I>()), ...);
  }
  (std::make_index_sequence<N>());
}

}  // namespace ballast
