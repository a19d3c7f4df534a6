// The order in which tiles add up products of bfloat16, for vectors.
#pragma once

namespace ballast {

/// Multiplies a few tiles and the same elements by vectors in the order of docs/design.md, and
/// compares all bits. Needs tiles of bfloat16, has_avx512_vnni() and has_avx512_bf16().
bool bf16_tiles_add_as_vectors();

}  // namespace ballast
