// Looks at all of a model whose files are hostile.
#pragma once

#include <filesystem>

#include "ballast/engine/model_file.h"
#include "ballast/error.h"
#include "target.h"

namespace ballast::fuzz {

inline void use_model(const std::filesystem::path& path) {
  try {
    const ModelFile model(path);
    BALLAST_FUZZ_CHECK(!model.files().empty());
    BALLAST_FUZZ_CHECK(model.find(Weight::query, model.config().layers) == nullptr);
    (void)model.tokenizer();
    const ModelConfig& config = model.config();
    (void)to_string(config.family);
    (void)config.rope.frequencies(config.max_positions);
    (void)config.rope.frequencies(config.max_positions * 2);
    (void)config.rope_of(config.layers - 1).frequencies(1);
    (void)alibi_slopes(config.heads, config.alibi_max_bias);
    (void)model.bytes();
    for (int w = 0; w < kWeights; ++w) {
      for (const Part part : {Part::weight, Part::bias}) {
        const TensorView* tensor = model.find(static_cast<Weight>(w), 0, part);
        if (tensor == nullptr) continue;
        BALLAST_FUZZ_CHECK(tensor->data.size() == tensor_bytes(tensor->type, tensor->size()));
        if (tensor->shape.size() != 2 || tensor->shape[0] == 0) continue;
        std::vector<float> row(tensor->shape[1]);
        decode_row(*tensor, tensor->shape[0] - 1, row);
      }
    }
    model.require_finite();
    (void)model.at(Weight::position_embedding);
  } catch (const Error&) {
  }
}

}  // namespace ballast::fuzz
