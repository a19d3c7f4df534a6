// Distances of stored rows from one point.
#pragma once

#include <span>

#include "ballast/storage.h"

namespace ballast::kernels {

/// out[i] = ‖row i − point‖² for every row. It sums squared differences, so that near points lose
/// no digits and equal ones are at 0. The point has rows.dim elements. A distance does not depend
/// on the other rows of the call.
void squared_distances(const RowsView& rows, std::span<const float> point, std::span<float> out);

}  // namespace ballast::kernels
