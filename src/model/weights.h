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
  /// Of an attention layer: norms of heads, projections, sinks of the query heads (or none).
  Norm attention_norm, query_norm, key_norm, post_attention_norm, ffn_norm, post_ffn_norm;
  Linear query, key, value, attention_output;
  std::vector<float> sink_logits;
  /// Of a short convolution: its width's taps one after another, from the oldest token on, each of
  /// all channels; a bias of all channels or none.
  Linear conv_in, conv_out;
  std::vector<float> conv, conv_bias;
  Linear attention_gate;
  /// Of the delta rule, beside a convolution; delta_rate is above 0.
  Linear delta_gate, delta_beta, delta_decay;
  std::vector<float> delta_decay_bias, delta_rate;
  Norm delta_norm;
  Linear ffn_gate, ffn_up, ffn_down;  ///< ffn_gate has no rows in a feed-forward without a gate
  Linear router, shared_gate;
  std::vector<float> router_choice;    ///< added to weights where experts are chosen by them
  std::vector<ExpertWeights> experts;  ///< in the place of the three above
};

/// Linear layers point into the file; norms and biases are copied.
struct ModelWeights {
  /// `config`: of the file, or of its layers from `first` on.
  ModelWeights(const ModelFile& file, const ModelConfig& config, std::size_t first = 0);

  Linear token_embedding, position_embedding, output;
  Norm output_norm;
  std::vector<LayerWeights> layers;
  std::vector<std::size_t> attending;  ///< see ModelConfig::attending()
  const LayerWeights& attention(std::size_t cache_layer) const {
    return layers[attending[cache_layer]];
  }
  std::size_t copied_bytes = 0;  ///< of norms and biases
  /// What is no part of the files: the pictures that texts for this model hold.
  std::shared_ptr<PictureRows> pictures = std::make_shared<PictureRows>();

 private:
  Norm norm(const ModelFile& file, Weight weight, std::size_t layer, float offset);
  std::vector<float> numbers(const ModelFile& file, Weight weight, std::size_t layer,
                             Part part = Part::weight);
  Linear linear(const ModelFile& file, Weight weight, std::size_t layer = 0,
                std::size_t expert = 0);

  std::deque<std::vector<float>> biases_;
};

}  // namespace ballast
