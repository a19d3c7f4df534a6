#include "model/weights.h"

namespace ballast {

Norm ModelWeights::norm(const ModelFile& file, Weight weight, std::size_t layer, float offset) {
  Norm norm;
  if (const TensorView* tensor = file.find(weight, layer)) norm.weight = to_float(*tensor);
  if (const TensorView* bias = file.find(weight, layer, Part::bias)) norm.bias = to_float(*bias);
  for (float& w : norm.weight) w += offset;
  copied_bytes += (norm.weight.size() + norm.bias.size()) * sizeof(float);
  return norm;
}

Linear ModelWeights::linear(const ModelFile& file, Weight weight, std::size_t layer,
                            std::size_t expert) {
  const TensorView* tensor = file.find(weight, layer, Part::weight, expert);
  if (tensor == nullptr) return {};
  Linear linear(*tensor);
  if (const TensorView* bias = file.find(weight, layer, Part::bias)) {
    biases_.push_back(to_float(*bias));
    copied_bytes += biases_.back().size() * sizeof(float);
    linear.bias = biases_.back().data();
  }
  return linear;
}

ModelWeights::ModelWeights(const ModelFile& file) {
  const ModelConfig& config = file.config();
  token_embedding = linear(file, Weight::token_embedding);
  position_embedding = linear(file, Weight::position_embedding);
  output = linear(file, Weight::output);
  output_norm = norm(file, Weight::output_norm, 0, config.norm_offset);
  for (std::size_t l = 0; l < config.layers; ++l) {
    LayerWeights w;
    w.attention_norm = norm(file, Weight::attention_norm, l, config.norm_offset);
    w.query_norm = norm(file, Weight::query_norm, l, config.norm_offset);
    w.key_norm = norm(file, Weight::key_norm, l, config.norm_offset);
    w.post_attention_norm = norm(file, Weight::post_attention_norm, l, config.norm_offset);
    w.ffn_norm = norm(file, Weight::ffn_norm, l, config.norm_offset);
    w.post_ffn_norm = norm(file, Weight::post_ffn_norm, l, config.norm_offset);
    w.query = linear(file, Weight::query, l);
    w.key = linear(file, Weight::key, l);
    w.value = linear(file, Weight::value, l);
    w.attention_output = linear(file, Weight::attention_output, l);
    w.ffn_gate = linear(file, Weight::ffn_gate, l);
    w.ffn_up = linear(file, Weight::ffn_up, l);
    w.ffn_down = linear(file, Weight::ffn_down, l);
    w.router = linear(file, Weight::router, l);
    for (std::size_t e = 0; e < config.experts; ++e) {
      w.experts.push_back({linear(file, Weight::expert_gate, l, e),
                           linear(file, Weight::expert_up, l, e),
                           linear(file, Weight::expert_down, l, e)});
    }
    layers.push_back(std::move(w));
  }
}

}  // namespace ballast
