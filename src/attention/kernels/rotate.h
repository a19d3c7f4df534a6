// Turning pairs of numbers, as rotary positions do.
#pragma once

#include <cstddef>

#include "ballast/matrix.h"

namespace ballast::kernels {

/// Turns (a[i], b[i]) by the angle of cosine turns[2i] and sine turns[2i + 1], for i < count. The
/// same on every processor.
void rotate_apart(const float* turns, std::size_t count, float* a, float* b);

/// The same of (row[2i], row[2i + 1]).
void rotate_adjacent(const float* turns, std::size_t count, float* row);

/// Row i by the `count` angles of turns[i], of which there are as many as rows: neighbours as
/// rotate_adjacent() if `pairs`, else as rotate_apart() the first `count` and the next.
void rotate_rows(bool pairs, const float* const* turns, std::size_t count, MutableMatrix rows);

}  // namespace ballast::kernels
