// What packing a text costs: measured once a model, when it is calibrated.
#pragma once

#include <functional>

#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"
#include "ballast/pack.h"

namespace ballast {

/// Sets PackPreset::loss of each preset: the mean over the texts of data/held-out, of which the
/// basis knows none, of the KL to the exact cache over what follows the first three quarters. A
/// text that is too short for the model's tokenizer is left out; loss stays 0 where all are. False,
/// with nothing set, if `progress`, told the fraction done, stopped it.
bool measure_presets(const Model& model, const Tokenizer& tokenizer, PackBasis& basis,
                     const std::function<bool(double)>& progress);

}  // namespace ballast
