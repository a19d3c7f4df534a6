// What a model's makers say of drawing its tokens.
#pragma once

#include "ballast/engine/model_file.h"
#include "ballast/engine/sampler.h"

namespace ballast {

/// `standard` with the temperature, top_k, top_p and min_p that the model's files name:
/// generation_config.json of a folder, general.sampling.* of GGUF. "do_sample": false is
/// temperature 0. Values that SamplingOptions does not take are left out. Throws Error if the file
/// is no JSON.
SamplingOptions suggested_sampling(const TokenizerSource& files, SamplingOptions standard);

}  // namespace ballast
