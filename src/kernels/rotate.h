// Turning pairs of numbers, as rotary positions do.
#pragma once

#include <cstddef>

namespace ballast::kernels {

/// Turns (a[i], b[i]) by the angle of cosine turns[2i] and sine turns[2i + 1], for i < count. The
/// same on every processor.
void rotate_apart(const float* turns, std::size_t count, float* a, float* b);

/// The same of (row[2i], row[2i + 1]).
void rotate_adjacent(const float* turns, std::size_t count, float* row);

}  // namespace ballast::kernels
