// A model's weights in the form that the forward pass reads.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "ballast/engine/model_file.h"
#include "gemm/matmul.h"
#include "model/picture_rows.h"

namespace ballast {

/// A norm's weights; empty when the model has no such norm.
struct Norm {
  std::vector<float> weight;  ///< includes the configuration's offset
  std::vector<float> bias;    ///< empty: none

  bool there() const { return !weight.empty(); }
};

struct ExpertWeights {
  Linear gate, up, down;
};

struct LayerWeights {
  Norm attention_norm, query_norm, key_norm, post_attention_norm, ffn_norm, post_ffn_norm;
  Linear query, key, value, attention_output;
  Linear ffn_gate, ffn_up, ffn_down;  ///< ffn_gate has no rows in a feed-forward without a gate
  Linear router;
  std::vector<ExpertWeights> experts;  ///< in the place of the three above
};

/// Linear layers point into the file; norms and biases are copied.
struct ModelWeights {
  explicit ModelWeights(const ModelFile& file);

  Linear token_embedding, position_embedding, output;
  Norm output_norm;
  std::vector<LayerWeights> layers;
  std::size_t copied_bytes = 0;  ///< of norms and biases
  /// What is no part of the files: the pictures that texts for this model hold.
  std::shared_ptr<PictureRows> pictures = std::make_shared<PictureRows>();

 private:
  Norm norm(const ModelFile& file, Weight weight, std::size_t layer, float offset);
  Linear linear(const ModelFile& file, Weight weight, std::size_t layer = 0,
                std::size_t expert = 0);

  std::deque<std::vector<float>> biases_;
};

}  // namespace ballast
