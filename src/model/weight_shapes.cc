#include "model/weight_shapes.h"

#include <array>
#include <string_view>

namespace ballast {
namespace {

constexpr std::array<std::string_view, kWeights> kWeightNames = {"token_embedding",
                                                                 "position_embedding",
                                                                 "output_norm",
                                                                 "output",
                                                                 "attention_norm",
                                                                 "query",
                                                                 "key",
                                                                 "value",
                                                                 "query_norm",
                                                                 "key_norm",
                                                                 "attention_output",
                                                                 "post_attention_norm",
                                                                 "ffn_norm",
                                                                 "ffn_gate",
                                                                 "ffn_up",
                                                                 "ffn_down",
                                                                 "post_ffn_norm",
                                                                 "sink_logits",
                                                                 "attention_gate",
                                                                 "conv_in",
                                                                 "conv",
                                                                 "conv_out",
                                                                 "delta_gate",
                                                                 "delta_beta",
                                                                 "delta_decay",
                                                                 "delta_decay_bias",
                                                                 "delta_rate",
                                                                 "delta_norm",
                                                                 "shared_gate",
                                                                 "router",
                                                                 "router_choice",
                                                                 "expert_gate",
                                                                 "expert_up",
                                                                 "expert_down"};
}  // namespace

std::string_view to_string(Weight weight) { return kWeightNames[static_cast<std::size_t>(weight)]; }

bool once_a_layer(Weight weight) { return weight >= Weight::attention_norm; }
bool once_an_expert(Weight weight) { return weight >= Weight::expert_gate; }
std::vector<std::size_t> shape_of(Weight weight, const ModelConfig& c, std::size_t layer) {
  const std::size_t delta_values = c.delta_value_heads * c.delta_value_dim;
  switch (weight) {
    case Weight::token_embedding:
    case Weight::output:
      return {c.vocabulary, c.width};
    case Weight::position_embedding:
      return {c.max_positions + c.position_offset, c.width};
    case Weight::query:
      return {c.heads * c.key_dim, c.width};
    case Weight::key:
      return {c.kv_heads * c.key_dim, c.width};
    case Weight::value:
      return {c.kv_heads * c.value_dim, c.width};
    case Weight::query_norm:
      return {c.joint_head_norms ? c.heads * c.key_dim : c.key_dim};
    case Weight::key_norm:
      return {c.joint_head_norms ? c.kv_heads * c.key_dim : c.key_dim};
    case Weight::attention_output:
      return {c.width, c.heads * c.value_dim};
    case Weight::ffn_gate:
    case Weight::ffn_up:
      return {c.dense_width(layer), c.width};
    case Weight::ffn_down:
      return {c.width, c.dense_width(layer)};
    case Weight::expert_gate:
    case Weight::expert_up:
      return {c.expert_width, c.width};
    case Weight::expert_down:
      return {c.width, c.expert_width};
    case Weight::shared_gate:
      return {1, c.width};
    case Weight::router:
      return {c.experts, c.width};
    case Weight::router_choice:
      return {c.experts};
    case Weight::sink_logits:
      return {c.heads};
    case Weight::attention_gate:
      return {c.heads * c.value_dim, c.width};
    case Weight::conv_in:
      return {c.kind(layer) == LayerKind::delta_rule ? c.conv_channels(layer) : 3 * c.width,
              c.width};
    case Weight::conv:
      return {c.conv_channels(layer), c.conv_width};
    case Weight::conv_out:
      return {c.width, c.kind(layer) == LayerKind::delta_rule ? delta_values : c.width};
    case Weight::delta_gate:
      return {delta_values, c.width};
    case Weight::delta_beta:
    case Weight::delta_decay:
      return {c.delta_value_heads, c.width};
    case Weight::delta_decay_bias:
    case Weight::delta_rate:
      return {c.delta_value_heads};
    case Weight::delta_norm:
      return {c.delta_value_dim};
    default:
      return {c.width};
  }
}
bool has_weight(const ModelConfig& c, std::size_t layer, const TensorRule& rule) {
  switch (rule.first) {
    case Weight::query:
    case Weight::key:
    case Weight::value:
    case Weight::query_norm:
    case Weight::key_norm:
    case Weight::attention_output:
    case Weight::sink_logits:
    case Weight::attention_gate:
      return c.kind(layer) == LayerKind::attention;
    case Weight::conv_in:
    case Weight::conv:
    case Weight::conv_out:
      return c.kind(layer) != LayerKind::attention;
    case Weight::delta_gate:
    case Weight::delta_beta:
    case Weight::delta_decay:
    case Weight::delta_decay_bias:
    case Weight::delta_rate:
    case Weight::delta_norm:
      return c.kind(layer) == LayerKind::delta_rule;
    case Weight::ffn_gate:
    case Weight::ffn_up:
    case Weight::ffn_down:
      return c.dense_width(layer) > 0 && rule.shared == c.has_experts(layer);
    case Weight::shared_gate:
    case Weight::router:
    case Weight::router_choice:
    case Weight::expert_gate:
    case Weight::expert_up:
    case Weight::expert_down:
      return c.has_experts(layer);
    default:
      return true;
  }
}
}  // namespace ballast
