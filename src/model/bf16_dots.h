// Products with BF16 weights, for processors that multiply bfloat16 numbers in pairs.
//
// A dot <w, x> is made of w, exact, and x rounded to bfloat16, their products exact, and added up
// in float32: sixteen sums, of numbers 2i and 2i + 1 of each 32 in sum i, united at the end in one
// fixed order. Rounding changes a number by at most 2⁻⁸ of it, so a dot by at most 2⁻⁸ · Σ|wᵢxᵢ|,
// and by a tenth of that and less when errors of many terms cancel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ballast/tensor.h"

namespace ballast {

/// Whether products with weights of this type are made here: BF16, on processors with AVX512_BF16.
/// F32 and F16 are not: their users expect their precision.
bool multiplies_bf16(TensorType type);

/// Numbers of a bfloat16 row with zeros up to the next multiple of 32.
constexpr std::size_t padded_bf16(std::size_t n) { return (n + 31) / 32 * 32; }

/// Rounds n numbers; writes padded_bf16(n).
void round_to_bf16(const float* x, std::size_t n, std::uint16_t* out);

/// Copies a row of n weights; writes padded_bf16(n).
void pad_bf16(const std::byte* row, std::size_t n, std::uint16_t* out);

/// out[r] = <row r, x> for `count` rows of n weights, the first at `rows`. x is padded.
void bf16_dots(const std::byte* rows, std::size_t row_bytes, std::size_t count, std::size_t n,
               const std::uint16_t* x, float* out);

/// A block of dots of rows with activations, both padded.
struct Bf16Tile {
  static constexpr std::size_t kRows = 4;
  static constexpr std::size_t kColumns = 6;
  static constexpr std::size_t kLanes = 16;

  const std::uint16_t* rows[kRows] = {};
  const std::uint16_t* xs[kColumns] = {};
  float* lanes = nullptr;  ///< kColumns × kRows × kLanes numbers, aligned: sums of earlier parts
  float sums[kColumns][kRows] = {};
};

/// Goes over n numbers, a multiple of 32, of all rows and the first `columns` activations. Unless
/// `first`, it adds to `lanes`; unless `last`, it leaves its sums there instead of uniting them.
void bf16_tile(Bf16Tile& tile, std::size_t n, std::size_t columns, bool first, bool last);

}  // namespace ballast
