// Rows of q4, q3 and q2: rotation, codes and codewords.
//
// A row x of dimension d, relative to its mean, is stored as codes c and one scale a, with
// x ≈ Rᵀ(a c), where
//   R = H diag(e) / √block,  H a Hadamard matrix, e fixed signs.
// R makes the elements of any row look like draws of one normal, so one codebook serves all. It is
// orthogonal: <q, x> = <R q, R x>, and attention rotates the query instead of every key.
// a = <R x, c> / <c, c>, so the error is orthogonal to c and least: for keys, which queries
// multiply. For values, which attention averages, a = <x, x> / <R x, c>, so the error is orthogonal
// to x: of many rows it averages out, where the other would leave a part of x out of each. The
// codes are the nearest codewords to the row scaled to variance 1 (TurboQuant's MSE form, arXiv
// 2504.19874, with that correction).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ballast/storage.h"

namespace ballast {

/// Codewords of a type, ascending: Lloyd-Max for a standard normal, scaled so that the largest is
/// 127. They are negatives of each other: codeword(i) = -codeword(levels - 1 - i).
inline constexpr std::array<std::int8_t, 4> kCodewords2 = {-127, -38, 38, 127};
inline constexpr std::array<std::int8_t, 8> kCodewords3 = {-127, -79, -45, -14, 14, 45, 79, 127};
inline constexpr std::array<std::int8_t, 16> kCodewords4 = {
    -127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127};
/// Of a rotated type.
std::span<const std::int8_t> codewords(StorageType type);

/// Where codes lie. Of q4 and q2, with B = row_bytes(): element n is field n / B of byte n mod B,
/// so kernels read 16 consecutive elements with one shift. Of q3: the low two bits as in q2; behind
/// those B bytes, in byte (n mod B) mod H of H = (B + 1) / 2, bit 2 (n / B) + (n mod B) / H is the
/// high bit.
constexpr std::size_t low_code_bytes(StorageType type, std::size_t dim) {
  return type == StorageType::q4 ? (dim + 1) / 2 : (dim + 3) / 4;
}

/// out = R row; both of the same size, up to 256 elements: not the same memory.
void hadamard_rotate(std::span<const float> row, float* out);
/// out = Rᵀ row.
void hadamard_rotate_back(std::span<const float> row, float* out);

/// Writes row_bytes() of codes and returns the scale, bfloat16.
/// `averaged`: the scale for values.
std::uint16_t encode_rotated(StorageType type, std::span<const float> row, bool averaged,
                             std::byte* codes);
void decode_rotated(StorageType type, const std::byte* codes, std::uint16_t scale,
                    std::span<float> out);

/// The codewords of a row in rotated order, `dim` of them.
void unpack_codewords(StorageType type, const std::byte* codes, std::size_t dim, std::int8_t* out);

}  // namespace ballast
