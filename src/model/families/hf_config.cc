#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "ballast/engine/model_config.h"
#include "base/fail.h"
#include "base/printable.h"
#include "formats/json.h"
#include "formats/json_file.h"
#include "formats/json_text.h"
#include "model/families/check_config.h"
#include "model/families/families.h"
#include "model/families/rope_scaling.h"

namespace ballast {
namespace {

using json = SortedJson;

/// The keys of config.json or of a nested object. null counts as absent.
class Keys {
 public:
  Keys(const json& object, std::string file, std::string within = "")
      : object_(object), file_(std::move(file)), within_(std::move(within)) {}

  const std::string& file() const { return file_; }
  bool has(const char* key) const { return value(key) != nullptr; }

  std::optional<std::size_t> find_size(const char* key) const {
    const json* v = value(key);
    if (v == nullptr) return std::nullopt;
    if (!v->is_number_unsigned()) wrong(key, "an integer of at least 0");
    return v->get<std::size_t>();
  }
  bool is_empty(const char* key) const { return has(key) && value(key)->empty(); }
  bool is_size(const char* key) const { return has(key) && value(key)->is_number_unsigned(); }
  std::size_t size(const char* key) const {
    auto v = find_size(key);
    if (!v) missing(key);
    return *v;
  }
  std::optional<double> find_number(const char* key) const {
    const json* v = value(key);
    if (v == nullptr) return std::nullopt;
    if (!v->is_number()) wrong(key, "a number");
    return v->get<double>();
  }
  double number(const char* key) const {
    auto v = find_number(key);
    if (!v) missing(key);
    return *v;
  }
  float number(const char* key, double otherwise) const {
    return static_cast<float>(find_number(key).value_or(otherwise));
  }
  /// The first of the keys that is there, for what families call by different names.
  const char* first_of(std::initializer_list<const char*> names) const {
    auto found = std::ranges::find_if(names, [&](const char* name) { return has(name); });
    return found == names.end() ? *names.begin() : *found;
  }
  bool flag(const char* key, bool otherwise) const {
    const json* v = value(key);
    if (v == nullptr) return otherwise;
    if (!v->is_boolean()) wrong(key, "true or false");
    return v->get<bool>();
  }
  std::string text(const char* key, std::string otherwise = "") const {
    const json* v = value(key);
    if (v == nullptr) return otherwise;
    if (!v->is_string()) wrong(key, "text");
    return v->get<std::string>();
  }
  std::vector<float> numbers(const char* key) const {
    const json* v = value(key);
    if (v == nullptr) missing(key);
    std::vector<float> out;
    for (const json& x : v->is_array() ? *v : json::array()) {
      if (!x.is_number()) wrong(key, "a list of numbers");
      out.push_back(x.get<float>());
    }
    if (out.empty()) wrong(key, "a list of numbers");
    return out;
  }
  std::vector<bool> flags(const char* key) const {
    std::vector<bool> out;
    if (!has(key)) return out;
    for (float x : numbers(key)) out.push_back(x != 0.0f);
    return out;
  }
  std::vector<std::string> texts(const char* key) const {
    const json* v = value(key);
    std::vector<std::string> out;
    if (v == nullptr) return out;
    if (!v->is_array()) wrong(key, "a list of texts");
    for (const json& x : *v) {
      if (!x.is_string()) wrong(key, "a list of texts");
      out.push_back(x.get<std::string>());
    }
    return out;
  }
  /// A nested object; empty if absent.
  Keys inner(const char* key) const {
    static const json kEmpty = json::object();
    const json* v = value(key);
    if (v != nullptr && !v->is_object()) wrong(key, "an object");
    return {v == nullptr ? kEmpty : *v, file_, within_ + key + "."};
  }

 private:
  const json* value(const char* key) const {
    auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void missing(const char* key) const {
    fail("{}: the key '{}{}' is missing", file_, within_, key);
  }
  [[noreturn]] void wrong(const char* key, const char* expected) const {
    fail("{}: the key '{}{}' is not {}", file_, within_, key, expected);
  }

  const json& object_;
  std::string file_;
  std::string within_;
};

Activation read_activation(const Keys& keys, const char* otherwise) {
  std::string name = keys.text(
      keys.first_of({"hidden_activation", "hidden_act", "activation_function"}), otherwise);
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") {
    return Activation::gelu_tanh;
  }
  if (name == "relu") return Activation::relu;
  fail(ErrorCode::unsupported,
       "{}: unknown activation '{}'; known: silu, gelu, gelu_pytorch_tanh, relu", keys.file(),
       printable(name));
}

void read_longrope(const Keys& keys, const Keys& scaling, const ModelConfig& c, Rope& rope) {
  rope.divisors = scaling.numbers("short_factor");
  rope.long_divisors = scaling.numbers("long_factor");
  rope.original_positions =
      scaling.find_size("original_max_position_embeddings")
          .value_or(keys.find_size("original_max_position_embeddings").value_or(c.max_positions));
  double original = static_cast<double>(rope.original_positions);
  double factor =
      scaling.find_number("factor").value_or(static_cast<double>(c.max_positions) / original);
  rope.magnitude = scaling.number("attention_factor", longrope_magnitude(factor, original));
}

void read_yarn(const Keys& scaling, Rope& rope) {
  rope.original_positions =
      scaling.find_size("original_max_position_embeddings").value_or(rope.original_positions);
  double factor = scaling.number("factor");
  rope.divisors = yarn_divisors(
      rope.dimension, static_cast<double>(rope.base),
      {factor, static_cast<double>(rope.original_positions),
       scaling.find_number("beta_fast").value_or(32.0),
       scaling.find_number("beta_slow").value_or(1.0), scaling.flag("truncate", true)});
  // DeepSeek's keys, of which Hugging Face uses both or none; 0 counts as none.
  const double scale = scaling.find_number("mscale").value_or(0.0);
  const double all = scaling.find_number("mscale_all_dim").value_or(0.0);
  const double magnitude = scale != 0.0 && all != 0.0
                               ? yarn_magnitude(factor, scale) / yarn_magnitude(factor, all)
                               : yarn_magnitude(factor);
  rope.magnitude = scaling.number("attention_factor", magnitude);
}

/// One rotation. `scaling`: what describes it; the base may stand in `keys` instead.
Rope read_rotation(const Keys& keys, const Keys& scaling, const char* base_key, double fraction,
                   const ModelConfig& c) {
  Rope rope;
  fraction = scaling.find_number("partial_rotary_factor")
                 .value_or(keys.find_number("partial_rotary_factor").value_or(fraction));
  require(fraction > 0.0 && fraction <= 1.0, "{}: {} of each head is rotated, not 0 to 1",
          keys.file(), fraction);
  rope.style = facts_of(c.family).composition.hf_rope;
  require(c.key_dim <= (std::size_t{1} << 32), "{}: heads of {} numbers", keys.file(), c.key_dim);
  rope.dimension = static_cast<std::size_t>(static_cast<double>(c.key_dim) * fraction);
  check_rope_dimension(rope.dimension, c.key_dim, keys.file());
  rope.base = scaling.number("rope_theta",
                             keys.find_number(base_key).value_or(static_cast<double>(rope.base)));
  rope.original_positions = c.max_positions;
  std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  if (type == "default") return rope;
  if (type == "linear") {
    rope.divisors.assign(rope.dimension / 2, static_cast<float>(scaling.number("factor")));
  } else if (type == "llama3") {
    rope.divisors = llama3_divisors(
        rope.dimension, static_cast<double>(rope.base),
        {scaling.number("factor"), scaling.number("low_freq_factor"),
         scaling.number("high_freq_factor"), scaling.number("original_max_position_embeddings")});
  } else if (type == "longrope" || type == "su") {
    read_longrope(keys, scaling, c, rope);
  } else if (type == "yarn") {
    read_yarn(scaling, rope);
  } else if (type == "dynamic" && !scaling.has("alpha")) {
    // Changes nothing within the model's positions, and there is no text beyond them.
  } else if (type == "dynamic" && rope.dimension > 2) {
    const double d = static_cast<double>(rope.dimension);
    rope.base *= static_cast<float>(std::pow(scaling.number("alpha"), d / (d - 2.0)));
  } else {
    fail(ErrorCode::unsupported,
         "{}: unknown rotary scaling '{}'; known: default, linear, llama3, longrope, su, yarn, "
         "dynamic",
         keys.file(), printable(type));
  }
  return rope;
}

/// `rope_scaling` and `rope_theta`, which newer files join in `rope_parameters`; of a model with
/// two rotations it has one object each.
void read_rope(const Keys& keys, ModelConfig& c, const char* base_key = "rope_theta",
               double fraction = 1.0) {
  const FamilyFacts& facts = facts_of(c.family);
  const Keys scaling = keys.inner(keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const bool apart = scaling.has("full_attention") || scaling.has("sliding_attention");
  const Keys none = keys.inner("");  // there is no such key
  if (facts.composition.second_rope == SecondRope::sliding) {
    const Keys own = apart ? scaling.inner("sliding_attention") : none;
    const char* key = keys.first_of({"rope_local_base_freq", base_key});
    c.second_rope = read_rotation(keys, own, key, fraction, c);
  }
  c.rope =
      read_rotation(keys, apart ? scaling.inner("full_attention") : scaling, base_key, fraction, c);
  c.query_growth = scaling.number("llama_4_scaling_beta", 0.0);
  spread_ropes(facts, c);
  const std::vector<bool> rotates = keys.flags("no_rope_layers");  // 1: the layer does rotate
  if (rotates.empty() || facts.composition.second_rope != SecondRope::listed) return;
  require(rotates.size() == c.layers, "{}: no_rope_layers lists {} of {} layers", keys.file(),
          rotates.size(), c.layers);
  for (std::size_t i = 0; i < c.layers; ++i) c.takes_second_rope[i] = !rotates[i];
}

/// Sliding windows by `layer_types` if present, otherwise by their period.
void read_windows(const Keys& keys, ModelConfig& c) {
  const bool qwen =
      c.family == Family::qwen2 || c.family == Family::qwen3 || c.family == Family::qwen3moe;
  const bool must_ask = qwen || c.family == Family::smollm3;
  const bool asks = keys.flag("use_sliding_window", !must_ask);
  const std::size_t window = asks ? keys.find_size("sliding_window").value_or(0) : 0;
  const std::vector<std::string> types = keys.texts("layer_types");
  require(types.empty() || types.size() == c.layers, "{}: layer_types lists {} of {} layers",
          keys.file(), types.size(), c.layers);
  const std::size_t usual = facts_of(c.family).composition.window_period;
  if (usual == 1 && !must_ask) return;
  const bool says = keys.is_size("sliding_window_pattern");
  spread_windows(window, says ? keys.size("sliding_window_pattern") : usual, c);
  const std::size_t first = qwen ? keys.find_size("max_window_layers").value_or(0) : 0;
  for (std::size_t i = 0; i < c.layers; ++i) {
    const bool slides =
        types.empty() ? i >= first && c.sliding_windows[i] > 0 : types[i] == "sliding_attention";
    require(types.empty() || slides || types[i] == "full_attention", ErrorCode::unsupported,
            "{}: layer {} is of type '{}', which is not supported", keys.file(), i,
            printable(types.empty() ? "" : types[i]));
    c.sliding_windows[i] = slides ? window : 0;
  }
}

/// The keys of Llama, which most families follow.
void read_llama_like(const Keys& keys, ModelConfig& c) {
  const FamilyFacts& facts = facts_of(c.family);
  c.layers = keys.size("num_hidden_layers");
  c.width = keys.size("hidden_size");
  c.heads = keys.size("num_attention_heads");
  require(c.heads > 0, "{}: the model has no attention heads", keys.file());
  check_layers(c, keys.file());
  c.kv_heads = keys.find_size("num_key_value_heads").value_or(c.heads);
  c.key_dim = c.value_dim = keys.find_size("head_dim").value_or(c.width / c.heads);
  c.ffn_width = keys.size(keys.first_of({"intermediate_size", "block_ff_dim"}));
  c.vocabulary = keys.size("vocab_size");
  c.max_positions = keys.size("max_position_embeddings");
  c.sliding_windows.assign(c.layers, 0);
  const double scalar =
      keys.find_number("query_pre_attn_scalar").value_or(static_cast<double>(c.key_dim));
  c.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  c.tied_embeddings = keys.flag("tie_word_embeddings", false);
  c.norm_epsilon = keys.number(keys.first_of({"rms_norm_eps", "layer_norm_eps", "norm_epsilon",
                                              "layer_norm_epsilon", "norm_eps"}),
                               c.norm == NormKind::layer ? 1e-5 : 1e-6);
  c.norm_offset = facts.composition.hf_norm_offset;
  if (c.activation != Activation::clamped_silu) {
    c.activation = read_activation(keys, c.norm == NormKind::layer ? "gelu" : "silu");
  }
  if (facts.composition.width_scaled_embedding) {
    c.embedding_scale = std::sqrt(static_cast<float>(c.width));
  }
  c.attention_softcap = keys.number("attn_logit_softcapping", 0.0);
  c.output_softcap = keys.number("final_logit_softcapping", 0.0);
}

void read_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size(keys.first_of({"num_experts", "num_local_experts", "n_routed_experts"}));
  c.experts_used = keys.size("num_experts_per_tok");
  c.experts_share_weight = keys.flag("norm_topk_prob", false);
  c.expert_width = keys.find_size("moe_intermediate_size").value_or(c.ffn_width);
  c.dense_layers =
      keys.find_size(keys.first_of({"num_dense_layers", "first_k_dense_replace"})).value_or(0);
  if (c.dense_layers == 0) c.ffn_width = c.expert_width;
  const Presence shared = facts_of(c.family).composition.shared_expert;
  if (shared == Presence::always) c.shared_width = keys.size("shared_expert_intermediate_size");
  if (shared == Presence::optional) {  // GLM 4.5 counts experts that are one together
    const std::size_t count = keys.find_size("n_shared_experts").value_or(0);
    c.shared_width = keys.find_size("shared_intermediate_size").value_or(count * c.expert_width);
  }
  c.experts_scale = keys.number("routed_scaling_factor", 1.0);
  check_groups(keys.find_size("n_group").value_or(1), keys.file());
  const bool all = keys.find_size("decoder_sparse_step").value_or(1) == 1 &&
                   (!keys.has("mlp_only_layers") || keys.is_empty("mlp_only_layers"));
  require(all, ErrorCode::unsupported,
          "{}: layers without experts among those that have some are not supported", keys.file());
}

/// LFM2: which layers are short convolutions, and its own words for the feed-forward block.
void read_lfm2(const Keys& keys, ModelConfig& c) {
  const std::vector<std::string> types = keys.texts("layer_types");
  std::vector<bool> attends(c.layers, types.empty() && !keys.has("full_attn_idxs"));
  require(types.empty() || types.size() == c.layers, "{}: layer_types lists {} of {} layers",
          keys.file(), types.size(), c.layers);
  for (std::size_t l = 0; l < types.size(); ++l) {
    attends[l] = types[l] == "full_attention";
    require(attends[l] || types[l] == "conv", ErrorCode::unsupported,
            "{}: layer {} is of type '{}', which is not supported", keys.file(), l,
            printable(types[l]));
  }
  if (types.empty() && keys.has("full_attn_idxs")) {
    for (float l : keys.numbers("full_attn_idxs")) {
      require(l >= 0 && l < static_cast<float>(c.layers), "{}: full_attn_idxs lists layer {} of {}",
              keys.file(), l, c.layers);
      attends[static_cast<std::size_t>(l)] = true;
    }
  }
  for (bool attention : attends) {
    c.kinds.push_back(attention ? LayerKind::attention : LayerKind::short_conv);
  }
  c.conv_width = keys.size("conv_L_cache");
  c.tied_embeddings = keys.flag("tie_embedding", c.tied_embeddings);
  if (c.family == Family::lfm2moe || !keys.flag("block_auto_adjust_ff_dim", true)) return;
  const std::size_t multiple = keys.size("block_multiple_of");
  require(multiple > 0 && c.ffn_width <= (std::size_t{1} << 24) && multiple <= c.ffn_width + 65536,
          "{}: a feed-forward width of {} in multiples of {}", keys.file(), c.ffn_width, multiple);
  const double scaled =
      std::floor(std::clamp(keys.number("block_ffn_dim_multiplier"), 0.0, 1024.0) *
                 std::floor(2.0 * static_cast<double>(c.ffn_width) / 3.0));
  c.ffn_width = (static_cast<std::size_t>(scaled) + multiple - 1) / multiple * multiple;
}

/// Qwen3-Next and 3.5: which layers follow the delta rule, and its heads.
void read_delta_rule(const Keys& keys, ModelConfig& c) {
  const std::vector<std::string> types = keys.texts("layer_types");
  const std::size_t interval = keys.size("full_attention_interval");
  require((types.empty() || types.size() == c.layers) && interval > 0,
          "{}: layer_types lists {} of {} layers, or full_attention_interval is 0", keys.file(),
          types.size(), c.layers);
  for (std::size_t l = 0; l < c.layers; ++l) {
    const bool attends = types.empty() ? (l + 1) % interval == 0 : types[l] == "full_attention";
    require(types.empty() || attends || types[l] == "linear_attention", ErrorCode::unsupported,
            "{}: layer {} is of type '{}', which is not supported", keys.file(), l,
            printable(types.empty() ? "" : types[l]));
    c.kinds.push_back(attends ? LayerKind::attention : LayerKind::delta_rule);
  }
  c.conv_width = keys.size("linear_conv_kernel_dim");
  c.delta_key_heads = keys.size("linear_num_key_heads");
  c.delta_value_heads = keys.size("linear_num_value_heads");
  c.delta_key_dim = keys.size("linear_key_head_dim");
  c.delta_value_dim = keys.size("linear_value_head_dim");
}

void read_granite(const Keys& keys, ModelConfig& c) {
  c.attention_scale = keys.number("attention_multiplier", 1.0);
  c.embedding_scale = keys.number("embedding_multiplier", 1.0);
  c.residual_scale = keys.number("residual_multiplier", 1.0);
  c.output_scale = 1.0f / keys.number("logits_scaling", 1.0);
  if (c.family == Family::granite4) c.ffn_width = keys.size("shared_intermediate_size");
  const std::vector<std::string> types =
      keys.texts(keys.first_of({"layer_types", "layers_block_type"}));
  const bool attend = std::ranges::all_of(types, [](const std::string& type) {
    return type == "attention" || type == "full_attention";
  });
  require(attend && (types.empty() || types.size() == c.layers), ErrorCode::unsupported,
          "{}: layers that are no attention (Mamba), which are not supported", keys.file());
  if (keys.text("position_embedding_type") != "rope") c.rope = {};
}

void read_rms_family(const Keys& keys, ModelConfig& c) {
  read_llama_like(keys, c);
  if (facts_of(c.family).composition.mixture) read_experts(keys, c);
  require(c.family != Family::gpt_oss || (keys.number("swiglu_alpha", 1.702) == 1.702f &&
                                          keys.number("swiglu_limit", 7.0) == 7.0f),
          ErrorCode::unsupported, "{}: swiglu_alpha is not 1.702, or swiglu_limit not 7",
          keys.file());
  if (c.family == Family::lfm2 || c.family == Family::lfm2moe) {
    read_lfm2(keys, c);
    return read_rope(keys, c);
  }
  if (c.gated_attention) read_delta_rule(keys, c);
  require(!keys.has("clip_qkv"), ErrorCode::unsupported,
          "{}: queries that are cut off after their norms (clip_qkv) are not supported",
          keys.file());
  read_windows(keys, c);
  read_rope(keys, c);
  c.output_scale = c.family == Family::cohere2 ? keys.number("logit_scale", 1.0) : 1.0f;
  if (facts_of(c.family).composition.granite_scales) read_granite(keys, c);
}

void read_gptneox(const Keys& keys, ModelConfig& c) {
  read_llama_like(keys, c);
  c.parallel_residual = keys.flag("use_parallel_residual", true);
  read_rope(keys, c, "rotary_emb_base", keys.find_number("rotary_pct").value_or(0.25));
}

void read_gpt2(const Keys& keys, ModelConfig& c) {
  c.layers = keys.size("n_layer");
  c.width = keys.size("n_embd");
  c.heads = c.kv_heads = keys.size("n_head");
  require(c.heads > 0, "{}: the model has no attention heads", keys.file());
  check_layers(c, keys.file());
  require(c.width <= (std::size_t{1} << 20), "{}: a width of {}", keys.file(), c.width);
  c.key_dim = c.value_dim = c.width / c.heads;
  c.ffn_width = keys.find_size("n_inner").value_or(4 * c.width);
  c.vocabulary = keys.size("vocab_size");
  c.max_positions = keys.size("n_positions");
  c.sliding_windows.assign(c.layers, 0);
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
  c.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  c.activation = read_activation(keys, "gelu_new");
  c.learned_positions = true;
  c.tied_embeddings = keys.flag("tie_word_embeddings", true);
}

void read_opt(const Keys& keys, ModelConfig& c) {
  c.layers = keys.size("num_hidden_layers");
  c.width = keys.size("hidden_size");
  c.heads = c.kv_heads = keys.size("num_attention_heads");
  require(c.heads > 0, "{}: the model has no attention heads", keys.file());
  check_layers(c, keys.file());
  c.key_dim = c.value_dim = c.width / c.heads;
  c.ffn_width = keys.size("ffn_dim");
  c.vocabulary = keys.size("vocab_size");
  c.max_positions = keys.size("max_position_embeddings");
  c.sliding_windows.assign(c.layers, 0);
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
  c.activation = read_activation(keys, "relu");
  c.learned_positions = true;
  c.position_offset = 2;
  c.tied_embeddings = keys.flag("tie_word_embeddings", true);
  // Both set the 350M model apart from all others.
  require(keys.flag("do_layer_norm_before", true) &&
              keys.find_size("word_embed_proj_dim").value_or(c.width) == c.width,
          ErrorCode::unsupported,
          "{}: OPT with norms after each block or projected embeddings is not supported",
          keys.file());
}

void read_mpt(const Keys& keys, ModelConfig& c) {
  Keys attention = keys.inner("attn_config");
  c.layers = keys.size("n_layers");
  c.width = keys.size("d_model");
  c.heads = keys.size("n_heads");
  require(c.heads > 0, "{}: the model has no attention heads", keys.file());
  require(c.layers <= 4096 && c.width <= (std::size_t{1} << 20), "{}: {} layers of width {}",
          keys.file(), c.layers, c.width);
  bool one = attention.text("attn_type") == "multiquery_attention";
  c.kv_heads = one ? 1 : attention.find_size("kv_n_heads").value_or(c.heads);
  c.key_dim = c.value_dim = c.width / c.heads;
  c.ffn_width = static_cast<std::size_t>(
      static_cast<double>(c.width) *
      std::clamp(keys.find_number("expansion_ratio").value_or(4.0), 0.0, 1024.0));
  c.vocabulary = keys.size("vocab_size");
  c.max_positions = keys.size("max_seq_len");
  c.sliding_windows.assign(c.layers, 0);
  c.attention_scale =
      attention.number("softmax_scale", 1.0 / std::sqrt(static_cast<double>(c.key_dim)));
  c.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  bool alibi = attention.flag("alibi", false);
  if (alibi) c.alibi_max_bias = attention.number("alibi_bias_max", 8.0);
  c.learned_positions = !alibi && keys.flag("learned_pos_emb", true);
  c.clamp_qkv = attention.number("clip_qkv", 0.0);
  if (keys.has("logit_scale")) c.output_scale = keys.number("logit_scale", 1.0);
  c.tied_embeddings = keys.flag("tie_word_embeddings", true);
  require(!attention.flag("qk_ln", false) && !attention.flag("rope", false), ErrorCode::unsupported,
          "{}: MPT with normalised queries (qk_ln) or rotary positions is not supported",
          keys.file());
}

const FamilyFacts& family_of(const Keys& keys) {
  std::vector<std::string> classes = keys.texts("architectures");
  std::string name = keys.text("model_type", classes.empty() ? "" : classes[0]);
  require(!name.empty(), "{}: neither model_type nor architectures says what the model is",
          keys.file());
  const FamilyFacts* facts = family_of_hf(name);
  require(facts != nullptr, ErrorCode::unsupported,
          "{}: unknown architecture '{}'; supported are {}", keys.file(), printable(name),
          hf_architectures());
  return *facts;
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& config_json) {
  json object = read_json(config_json);
  require(object.is_object(), "{}: not a model's description: no JSON object",
          config_json.string());
  // Models that take pictures too have the text model's description inside.
  auto text = object.find("text_config");
  if (text == object.end()) text = object.find("llm_config");  // InternVL's own layout
  if (text != object.end() && text->is_object()) {
    json inner = std::move(*text);
    if (auto tied = object.find("tie_word_embeddings"); tied != object.end()) {
      inner.emplace("tie_word_embeddings", *tied);
    }
    object = std::move(inner);
  }
  Keys keys(object, config_json.string());
  const FamilyFacts* facts = &family_of(keys);
  const json defaults = parse_json_text(facts->composition.hf_defaults, "defaults");
  for (const auto& [key, value] : defaults.items()) object.emplace(key, value);
  const bool experts = keys.find_size("num_local_experts").value_or(0) > 0;
  if (experts && facts->family == Family::granite4) facts = &facts_of(Family::granitemoe);
  ModelConfig c;
  compose(*facts, c);
  c.name = keys.text("_name_or_path");
  switch (c.family) {
    case Family::opt:
      read_opt(keys, c);
      break;
    case Family::gptneox:
      read_gptneox(keys, c);
      break;
    case Family::mpt:
      read_mpt(keys, c);
      break;
    case Family::gpt2:
      read_gpt2(keys, c);
      break;
    default:
      read_rms_family(keys, c);
      break;
  }
  check_config(c, config_json.string());
  return c;
}

}  // namespace ballast
