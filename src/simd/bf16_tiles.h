// The order in which tiles add up products of bfloat16, for vectors.
#pragma once

#include <string>

namespace ballast {

/// Multiplies a few tiles, and the same elements by vectors in the order of
/// simd/bf16_tiles-inl.h, and compares all bits but those of NaNs. Returns the first sum that
/// differs in a line, or nothing. Needs tiles of bfloat16, has_avx512_vnni() and
/// has_avx512_bf16().
std::string bf16_tile_difference();

}  // namespace ballast
