// Loads kLanes weight rows at once, a row in each lane of 32 bits. Included after avx2-inl.h or
// avx512-inl.h, inside a region of that target.
#pragma once

#include "gemm/quant_types-inl.h"

namespace ballast::gemm::BALLAST_ISA {

/// Transposes 4 × 4 elements of 32 bits in each 128-bit lane.
BALLAST_INLINE Vectors<4> transpose_4x4(const Vector (&v)[4]) {
  const Vector a = unpack_low_32(v[0], v[1]), b = unpack_high_32(v[0], v[1]);
  const Vector c = unpack_low_32(v[2], v[3]), d = unpack_high_32(v[2], v[3]);
  return {{unpack_low_64(a, c), unpack_high_64(a, c), unpack_low_64(b, d), unpack_high_64(b, d)}};
}

/// Loads 16 bytes of each row: vector d has bytes 4d to 4d + 3.
BALLAST_INLINE Vectors<4> load_transposed(const Bytes (&p)[kLanes], std::size_t at) {
  Vector v[4];
  unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { v[a] = load_every_4th_row(p + a, at); });
  return transpose_4x4(v);
}

/// The float16 at byte `at` of each row.
BALLAST_INLINE Floats load_f16_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  alignas(32) std::uint16_t bits[kLanes];
  for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint16_t>(p[r] + at);
  return f16_to_f32(bits);
}

/// The fifth bits of a block of each row, one block in a lane.
struct FifthBitsOfLanes {
  Vector bits;
  template <int h>
  BALLAST_INLINE Vectors<4> at() const {
    Vectors<4> out;
    unroll<4>([&](auto d)
                  BALLAST_INLINE_LAMBDA { out.v[d] = spread_fifth_bits<16 * h + 4 * d>(bits); });
    return out;
  }
};

/// Loads the fifth bits of the blocks at byte `at`. Types without them load nothing.
template <typename Type>
BALLAST_INLINE FifthBitsOfLanes fifth_bits_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  FifthBitsOfLanes fifth;
  if constexpr (Type::kFifthBits != 0) {
    alignas(64) std::uint32_t bits[kLanes];
    for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint32_t>(p[r] + at + Type::kFifthBits);
    fifth.bits = load_lanes(bits);
  }
  return fifth;
}

}  // namespace ballast::gemm::BALLAST_ISA
