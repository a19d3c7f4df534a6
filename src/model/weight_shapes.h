// Which weights a model of a configuration has, and their shapes.
#pragma once

#include <cstddef>
#include <vector>

#include "ballast/engine/model_config.h"
#include "ballast/engine/model_file.h"
#include "model/families/families.h"

namespace ballast {

/// Whether each layer has one of it, or only the model.
bool once_a_layer(Weight weight);
/// Whether each expert has one of it.
bool once_an_expert(Weight weight);

/// Rows and columns; of a vector its elements. `layer`: of recurrent layers, whose shapes depend on
/// their kind, and of feed-forward blocks.
std::vector<std::size_t> shape_of(Weight weight, const ModelConfig& config, std::size_t layer = 0);

/// Whether a layer of the model has the rule's weight, by that rule.
bool has_weight(const ModelConfig& config, std::size_t layer, const TensorRule& rule);

}  // namespace ballast
