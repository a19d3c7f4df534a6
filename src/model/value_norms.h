// What a model's output projections write, for methods that weigh values by it.
#pragma once

#include <memory>

#include "ballast/engine/model.h"

namespace ballast {

/// See ValueNorms. Keeps the model's weights alive.
std::shared_ptr<const ValueNorms> make_value_norms(const Model& model);

}  // namespace ballast
