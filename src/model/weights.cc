#include "model/weights.h"

#include <cmath>

namespace ballast {
namespace {

/// [channels, taps] as taps one after another.
std::vector<float> by_tap(std::vector<float> conv, std::size_t taps) {
  std::vector<float> out(conv.size());
  const std::size_t channels = taps == 0 ? 0 : conv.size() / taps;
  for (std::size_t i = 0; i < conv.size(); ++i) out[i % taps * channels + i / taps] = conv[i];
  return out;
}

}  // namespace

std::vector<float> ModelWeights::numbers(const ModelFile& file, Weight weight, std::size_t layer,
                                         Part part) {
  const TensorView* tensor = file.find(weight, layer, part);
  std::vector<float> out;
  if (tensor != nullptr) out = to_float(*tensor);
  copied_bytes += out.size() * sizeof(float);
  return out;
}

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
  if (const TensorView* bias = file.find(weight, layer, Part::bias, expert)) {
    biases_.push_back(to_float(*bias));
    copied_bytes += biases_.back().size() * sizeof(float);
    linear.bias = biases_.back().data();
  }
  return linear;
}

ModelWeights::ModelWeights(const ModelFile& file, const ModelConfig& config, std::size_t first) {
  attending = config.attending();
  token_embedding = linear(file, Weight::token_embedding);
  position_embedding = linear(file, Weight::position_embedding);
  output = linear(file, Weight::output);
  output_norm = norm(file, Weight::output_norm, 0, config.norm_offset);
  for (std::size_t l = first; l < first + config.layers; ++l) {
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
    w.sink_logits = numbers(file, Weight::sink_logits, l);
    w.conv_in = linear(file, Weight::conv_in, l);
    w.conv_out = linear(file, Weight::conv_out, l);
    w.conv = by_tap(numbers(file, Weight::conv, l), config.conv_width);
    w.attention_gate = linear(file, Weight::attention_gate, l);
    w.delta_gate = linear(file, Weight::delta_gate, l);
    w.delta_beta = linear(file, Weight::delta_beta, l);
    w.delta_decay = linear(file, Weight::delta_decay, l);
    w.delta_decay_bias = numbers(file, Weight::delta_decay_bias, l);
    w.delta_rate = numbers(file, Weight::delta_rate, l);
    for (float& x : w.delta_rate) x = file.gguf() != nullptr ? -x : std::exp(x);
    w.delta_norm = norm(file, Weight::delta_norm, l, 0.0f);
    w.conv_bias = numbers(file, Weight::conv, l, Part::bias);
    w.ffn_gate = linear(file, Weight::ffn_gate, l);
    w.ffn_up = linear(file, Weight::ffn_up, l);
    w.ffn_down = linear(file, Weight::ffn_down, l);
    w.router = linear(file, Weight::router, l);
    w.shared_gate = linear(file, Weight::shared_gate, l);
    w.router_choice = numbers(file, Weight::router_choice, l);
    for (std::size_t e = 0; config.has_experts(l - first) && e < config.experts; ++e) {
      w.experts.push_back({linear(file, Weight::expert_gate, l, e),
                           linear(file, Weight::expert_up, l, e),
                           linear(file, Weight::expert_down, l, e)});
    }
    layers.push_back(std::move(w));
  }
}

}  // namespace ballast
