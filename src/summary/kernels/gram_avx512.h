// Dot products of balanced tokens on processors with AVX512_BF16, at twice the speed of float32:
// part of balance.cc.
#pragma once

#include <cstddef>

namespace ballast::kernels::avx512 {

/// Rows of a tile.
inline constexpr std::size_t kGramRows = 8;

/// Converts consecutive groups of 16 tokens, [dim][16] floats each, to bf16 pairs in place. The
/// first ⌈dim/2⌉·16 32-bit elements of a group then hold two coordinates of 16 tokens per cache
/// line.
void pair_up(float* packed, std::size_t groups, std::size_t dim);

/// Dot products of tokens row .. row + 7 with those of `count` (1 to 3) groups from `group` on.
/// Sums are float32, in rows of `out`, `stride` apart, from column 16·group on.
void gram_tile(const float* packed, std::size_t dim, std::size_t row, std::size_t group,
               std::size_t count, float* out, std::size_t stride);

}  // namespace ballast::kernels::avx512
