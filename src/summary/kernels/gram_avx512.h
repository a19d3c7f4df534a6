// Inner products of balanced tokens for processors that multiply and add bf16 in pairs
// (AVX512_BF16), at twice the speed of float32: part of balance.cc.
#pragma once

#include <cstddef>

namespace ballast::kernels::avx512 {

/// Rows of a tile.
inline constexpr std::size_t kGramRows = 8;

/// Turns groups of 16 tokens, each [dim][16] floats one after the other, into pairs of bf16, in
/// place: the first ⌈dim/2⌉·16 words of each group hold two coordinates of 16 tokens a line.
void pair_up(float* packed, std::size_t groups, std::size_t dim);

/// Of such groups: the inner products of tokens row .. row + 7 with those of `count` (1 to 3)
/// groups from `group` on, summed in float32, into rows of `out`, `stride` apart, at column
/// 16·group.
void gram_tile(const float* packed, std::size_t dim, std::size_t row, std::size_t group,
               std::size_t count, float* out, std::size_t stride);

}  // namespace ballast::kernels::avx512
