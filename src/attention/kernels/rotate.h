// Rotates pairs of elements, as rotary position embeddings do.
#pragma once

#include <cstddef>

#include "ballast/matrix.h"

namespace ballast::kernels {

/// Rotates (a[i], b[i]) by the angle with cosine turns[2i] and sine turns[2i + 1], for i < count.
/// Results are equal on every processor.
void rotate_apart(const float* turns, std::size_t count, float* a, float* b);

/// Rotates (row[2i], row[2i + 1]) likewise.
void rotate_adjacent(const float* turns, std::size_t count, float* row);

/// Rotates row i by the `count` angles of turns[i]; there are as many as rows. If `pairs`, adjacent
/// elements form a pair (rotate_adjacent()). Otherwise the first `count` elements pair with the
/// next `count` (rotate_apart()).
void rotate_rows(bool pairs, const float* const* turns, std::size_t count, MutableMatrix rows);

}  // namespace ballast::kernels
