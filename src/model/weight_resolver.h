// The weights of a model among the tensors of its files.
#pragma once

#include <cstddef>

#include "ballast/engine/model_file.h"

namespace ballast {

/// The key of a weight in ModelFile's map. `expert`: 0 of weights that no expert has.
std::size_t weight_slot(Weight weight, std::size_t layer, Part part, std::size_t expert);

/// Finds and checks each tensor of a family's rules, splits fused ones, and copies those whose type
/// no product takes. Throws Error if one is missing or has another shape.
void resolve_weights(ModelFile& model);

}  // namespace ballast
