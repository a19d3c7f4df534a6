// Weights of kLanes rows side by side, a row in each lane. Included after the vectors of a set of
// instructions, inside a region of its target.
#pragma once

#include "gemm/quant_types-inl.h"

namespace ballast::gemm::BALLAST_VECTORS {

/// Bytes 4d to 4d + 3 of each 16 in vector d.
BALLAST_INLINE Vectors<4> transposed(const Vector (&v)[4]) {
  const Vector a = low_32(v[0], v[1]), b = high_32(v[0], v[1]);
  const Vector c = low_32(v[2], v[3]), d = high_32(v[2], v[3]);
  return {{low_64(a, c), high_64(a, c), low_64(b, d), high_64(b, d)}};
}

/// Sixteen bytes of each row: vector d has bytes 4d to 4d + 3.
BALLAST_INLINE Vectors<4> transposed(const Bytes (&p)[kLanes], std::size_t at) {
  Vector v[4];
  unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { v[a] = every_fourth(p + a, at); });
  return transposed(v);
}

BALLAST_INLINE Floats f16_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  alignas(32) std::uint16_t bits[kLanes];
  for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint16_t>(p[r] + at);
  return f16_of(bits);
}

/// The fifth bits of a block of each row.
struct FifthOfLanes {
  Vector bits;
  template <int h>
  BALLAST_INLINE Vectors<4> at() const {
    Vectors<4> out;
    unroll<4>([&](auto d)
                  BALLAST_INLINE_LAMBDA { out.v[d] = four_as_fifth<16 * h + 4 * d>(bits); });
    return out;
  }
};

/// Those of the blocks at `at`; of types that have none, nothing.
template <typename Type>
BALLAST_INLINE FifthOfLanes fifth_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  FifthOfLanes fifth;
  if constexpr (Type::kFifth != 0) {
    alignas(64) std::uint32_t bits[kLanes];
    for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint32_t>(p[r] + at + Type::kFifth);
    fifth.bits = load_lanes(bits);
  }
  return fifth;
}

}  // namespace ballast::gemm::BALLAST_VECTORS
