// Dot products of balanced tokens on processors with AVX512_BF16, at twice the speed of float32,
// and by tiles (AMX): part of balance.cc.
#pragma once

#include <cstddef>

#include "simd/cpu.h"

namespace ballast::kernels::avx512 {

/// Rows of a tile.
inline constexpr std::size_t kGramRows = 8;

/// Converts consecutive groups of 16 tokens, [dim][16] floats each, to bf16 pairs in place. The
/// first ⌈dim/2⌉·16 32-bit elements of a group then hold two coordinates of 16 tokens per cache
/// line; if gram_by_tiles(), zeros follow up to a multiple of 16 lines.
void pair_up(float* packed, std::size_t groups, std::size_t dim);

/// Dot products of tokens row .. row + 7 with those of `count` (1 to 3) groups from `group` on.
/// Sums are float32, in rows of `out`, `stride` apart, from column 16·group on.
void gram_tile(const float* packed, std::size_t dim, std::size_t row, std::size_t group,
               std::size_t count, float* out, std::size_t stride);

/// Whether gram_panel() serves. Groups of fewer dimensions have no room for a tile.
inline bool gram_by_tiles(std::size_t dim) { return dim >= 16 && dim <= 256 && has_amx_bf16(); }

/// gram_tile() for groups 0 .. groups − 1, by tiles, which add in another order.
void gram_panel(const float* packed, std::size_t dim, std::size_t row, std::size_t groups,
                float* out, std::size_t stride);

}  // namespace ballast::kernels::avx512
