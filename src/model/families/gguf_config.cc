#include <algorithm>
#include <cmath>
#include <string>

#include "ballast/engine/gguf.h"
#include "ballast/engine/model_config.h"
#include "base/fail.h"
#include "base/printable.h"
#include "model/families/check_config.h"
#include "model/families/families.h"
#include "model/families/rope_scaling.h"

namespace ballast {
namespace {

constexpr std::size_t kMostListed = 65'536;  // numbers of one key; no model has as many layers

/// The keys of one architecture without their prefix: "block_count" is "llama.block_count".
class Keys {
 public:
  Keys(const Gguf& file, std::string_view architecture) : file_(file), prefix_(architecture) {
    prefix_ += '.';
  }

  template <typename T>
  std::optional<T> find(std::string_view key) const {
    return file_.find<T>(prefix_ + std::string(key));
  }
  std::size_t size(std::string_view key) const {
    std::optional<std::size_t> value = maybe_size(key);
    return value ? *value : file_.get<std::uint64_t>(prefix_ + std::string(key));  // names the key
  }
  /// A size that some files list for each layer; all layers must agree.
  std::optional<std::size_t> maybe_size(std::string_view key) const {
    std::string full = prefix_ + std::string(key);
    const GgufEntry* entry = file_.entry(full);
    if (entry == nullptr) return std::nullopt;
    if (!entry->is_array) return file_.get<std::uint64_t>(full);
    require(entry->count <= kMostListed, "{}: the key '{}' lists {} numbers; at most {} are read",
            file_.path().string(), full, entry->count, kMostListed);
    auto values = file_.get<std::vector<std::int64_t>>(full);
    for (std::int64_t value : values) {
      require(value == values[0] && value >= 0, ErrorCode::unsupported,
              "{}: the key '{}' differs between layers, which is not supported",
              file_.path().string(), full);
    }
    require(!values.empty(), "{}: the key '{}' is an empty array", file_.path().string(), full);
    return static_cast<std::size_t>(values[0]);
  }
  /// A list of one size a layer; empty if the key is absent or no list.
  std::vector<std::size_t> sizes(std::string_view key, std::size_t layers) const {
    std::string full = prefix_ + std::string(key);
    const GgufEntry* entry = file_.entry(full);
    if (entry == nullptr || !entry->is_array) return {};
    require(entry->count == layers, "{}: the key '{}' lists {} of {} layers", file_.path().string(),
            full, entry->count, layers);
    std::vector<std::size_t> out;
    for (std::int64_t x : file_.get<std::vector<std::int64_t>>(full)) {
      require(x >= 0, "{}: the key '{}' lists {}", file_.path().string(), full, x);
      out.push_back(static_cast<std::size_t>(x));
    }
    return out;
  }
  float number(std::string_view key, float otherwise) const {
    return find<float>(key).value_or(otherwise);
  }
  /// A list of one flag a layer; empty if the key is absent or no list.
  std::vector<bool> flags(std::string_view key, std::size_t layers) const {
    std::string full = prefix_ + std::string(key);
    const GgufEntry* entry = file_.entry(full);
    if (entry == nullptr || !entry->is_array) return {};
    require(entry->count == layers, "{}: the key '{}' lists {} of {} layers", file_.path().string(),
            full, entry->count, layers);
    std::vector<bool> out;
    if (entry->type == GgufType::boolean) {
      for (std::byte x : entry->data) out.push_back(x != std::byte{0});
    } else {
      for (std::int64_t x : file_.get<std::vector<std::int64_t>>(full)) out.push_back(x != 0);
    }
    return out;
  }

 private:
  const Gguf& file_;
  std::string prefix_;
};

std::size_t vocabulary_of(const Gguf& file, const Keys& keys) {
  const TensorView* embedding = file.find_tensor("token_embd.weight");
  if (embedding != nullptr && embedding->shape.size() == 2) return embedding->shape[0];
  if (auto size = keys.maybe_size("vocab_size")) return *size;
  const GgufEntry* tokens = file.entry("tokenizer.ggml.tokens");
  require(tokens != nullptr && tokens->is_array,
          "{}: neither the embedding nor the tokenizer says how large the vocabulary is",
          file.path().string());
  return tokens->count;
}

/// LFM2's layers without key-value heads are short convolutions.
void read_kv_heads(const Gguf& file, const Keys& keys, ModelConfig& c) {
  constexpr std::string_view kKey = "attention.head_count_kv";
  if (c.family != Family::lfm2 && c.family != Family::lfm2moe) {
    c.kv_heads = keys.maybe_size(kKey).value_or(c.heads);
    return;
  }
  check_layers(c, file.path().string());
  c.conv_width = keys.size("shortconv.l_cache");
  std::vector<std::size_t> heads = keys.sizes(kKey, c.layers);
  if (heads.empty()) heads.assign(c.layers, keys.size(kKey));
  for (std::size_t count : heads) {
    c.kinds.push_back(count > 0 ? LayerKind::attention : LayerKind::short_conv);
    require(count == 0 || c.kv_heads == 0 || count == c.kv_heads, ErrorCode::unsupported,
            "{}: layers of {} and of {} key-value heads, which is not supported",
            file.path().string(), c.kv_heads, count);
    c.kv_heads = std::max(c.kv_heads, count);
  }
}

/// Qwen3-Next and 3.5.
void read_delta_rule(const Keys& keys, ModelConfig& c) {
  const std::size_t interval =
      std::max<std::size_t>(keys.maybe_size("full_attention_interval").value_or(4), 1);
  for (std::size_t l = 0; l < c.layers; ++l) {
    c.kinds.push_back((l + 1) % interval == 0 ? LayerKind::attention : LayerKind::delta_rule);
  }
  c.conv_width = keys.size("ssm.conv_kernel");
  c.delta_key_heads = keys.size("ssm.group_count");
  c.delta_value_heads = keys.size("ssm.time_step_rank");
  c.delta_key_dim = keys.size("ssm.state_size");
  const std::size_t heads = std::max<std::size_t>(c.delta_value_heads, 1);
  c.delta_value_dim = keys.size("ssm.inner_size") / heads;
  c.delta_heads_in_turn = c.family != Family::qwen3next;
}

void read_experts(const Gguf& file, const FamilyFacts& facts, const Keys& keys, ModelConfig& c) {
  const Composition& as = facts.composition;
  c.experts_used = keys.size("expert_used_count");
  c.experts_share_weight = keys.find<bool>("expert_weights_norm").value_or(as.gguf_shares_weight);
  c.expert_width = keys.maybe_size("expert_feed_forward_length").value_or(c.ffn_width);
  c.dense_layers = keys.maybe_size("leading_dense_block_count").value_or(0);
  if (c.dense_layers == 0) c.ffn_width = c.expert_width;
  c.experts_scale = keys.number("expert_weights_scale", 1.0f);
  constexpr std::string_view kShared = "expert_shared_feed_forward_length";
  if (as.shared_expert == Presence::always) c.shared_width = keys.size(kShared);
  if (as.shared_expert == Presence::optional) {  // GLM 4.5 counts experts that are one together
    const std::size_t count = keys.maybe_size("expert_shared_count").value_or(0);
    c.shared_width = keys.maybe_size(kShared).value_or(count * c.expert_width);
  }
  check_groups(keys.maybe_size("expert_group_count").value_or(1), file.path().string());
}

void read_sizes(const Gguf& file, const Keys& keys, ModelConfig& c) {
  c.layers = keys.size("block_count");
  // Blocks that predict further tokens come last, and are not used.
  c.layers -= std::min(c.layers, keys.maybe_size("nextn_predict_layers").value_or(0));
  c.width = keys.size("embedding_length");
  c.heads = keys.size("attention.head_count");
  read_kv_heads(file, keys, c);
  require(c.heads > 0, "{}: the model has no attention heads", file.path().string());
  c.key_dim = keys.maybe_size("attention.key_length").value_or(c.width / c.heads);
  c.value_dim = keys.maybe_size("attention.value_length").value_or(c.width / c.heads);
  c.ffn_width = keys.size("feed_forward_length");
  c.max_positions = keys.size("context_length");
  c.vocabulary = vocabulary_of(file, keys);
}

std::vector<float> factors(const Gguf& file, std::string_view name) {
  const TensorView* tensor = file.find_tensor(name);
  return tensor == nullptr ? std::vector<float>() : to_float(*tensor);
}

void read_rope(const Gguf& file, const Keys& keys, ModelConfig& c) {
  Rope& rope = c.rope;
  rope.dimension = keys.maybe_size("rope.dimension_count").value_or(c.key_dim);
  check_rope_dimension(rope.dimension, c.key_dim, file.path().string());
  rope.base = keys.number("rope.freq_base", 10000.0f);
  rope.original_positions =
      keys.maybe_size("rope.scaling.original_context_length").value_or(c.max_positions);
  rope.magnitude = keys.number("rope.scaling.attn_factor", 1.0f);
  rope.divisors = factors(file, "rope_factors_short.weight");
  rope.long_divisors = factors(file, "rope_factors_long.weight");
  if (rope.divisors.empty()) rope.divisors = factors(file, "rope_freqs.weight");

  auto type = keys.find<std::string_view>("rope.scaling.type").value_or("linear");
  float factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0f));
  if (factor == 0.0f || factor == 1.0f || type == "none" || type == "longrope") return;
  require(factor > 0.0f && std::isfinite(factor), "{}: the rotary scaling factor is {}",
          file.path().string(), factor);
  std::vector<float> divisors;
  if (type == "linear") {
    divisors.assign(rope.dimension / 2, factor);
  } else if (type == "yarn") {
    divisors =
        yarn_divisors(rope.dimension, static_cast<double>(rope.base),
                      {static_cast<double>(factor), static_cast<double>(rope.original_positions),
                       static_cast<double>(keys.number("rope.scaling.yarn_beta_fast", 32)),
                       static_cast<double>(keys.number("rope.scaling.yarn_beta_slow", 1)),
                       facts_of(c.family).composition.gguf_yarn_truncates});
    const double all = static_cast<double>(keys.number("rope.scaling.yarn_log_multiplier", 0.0f));
    rope.magnitude *= static_cast<float>(yarn_magnitude(static_cast<double>(factor)) /
                                         yarn_magnitude(static_cast<double>(factor), all));
  } else {
    fail(ErrorCode::unsupported,
         "{}: unknown rotary scaling '{}'; known: none, linear, yarn, longrope",
         file.path().string(), printable(type));
  }
  // Factors from a tensor apply in addition, as in llama.cpp.
  for (std::size_t i = 0; i < rope.divisors.size() && i < divisors.size(); ++i) {
    divisors[i] *= rope.divisors[i];
  }
  rope.divisors = divisors;
}

void read_norms(const Gguf& file, const Keys& keys, ModelConfig& c) {
  std::string_view key = c.norm == NormKind::layer ? "attention.layer_norm_epsilon"
                                                   : "attention.layer_norm_rms_epsilon";
  auto epsilon = keys.find<float>(key);
  require(epsilon.has_value(), "{}: the key '{}.{}' is missing", file.path().string(),
          facts_of(c.family).gguf, key);
  c.norm_epsilon = *epsilon;
}

void read_windows(const FamilyFacts& facts, const Keys& keys, ModelConfig& c) {
  const bool gemma2 = c.family == Family::gemma2;  // whose files may leave it out
  const std::size_t window =
      keys.maybe_size("attention.sliding_window").value_or(gemma2 ? 4096 : 0);
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const std::vector<bool> slides = keys.flags(kPattern, c.layers);
  std::size_t period = facts.composition.window_period;
  if (period == 1) period = 0;  // a folder of the family has no windows: the file is of another
  if (slides.empty()) period = keys.maybe_size(kPattern).value_or(period);
  spread_windows(window, period, c);
  for (std::size_t i = 0; i < slides.size(); ++i) c.sliding_windows[i] = slides[i] ? window : 0;
  spread_ropes(facts, c);
  if (facts.composition.second_rope != SecondRope::sliding) return;
  // Layers that slide rotate without scaling.
  const float base = facts.composition.gguf_sliding_base;
  c.second_rope.style = c.rope.style;
  c.second_rope.dimension = c.rope.dimension;
  c.second_rope.base = keys.number("rope.freq_base_swa", base > 0.0f ? base : c.rope.base);
}

void read_scales(const Keys& keys, ModelConfig& c) {
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
  const float scale = keys.number("attention.scale", 0.0f);
  if (scale > 0.0f) c.attention_scale = scale;
  c.query_growth = keys.number("attention.temperature_scale", 0.0f);
  c.embedding_scale = keys.number("embedding_scale", 1.0f);
  c.residual_scale = keys.number("residual_scale", 1.0f);
  c.output_scale = keys.number("logit_scale", 1.0f);
  if (facts_of(c.family).composition.granite_scales) c.output_scale = 1.0f / c.output_scale;
  c.attention_softcap = keys.number("attn_logit_softcapping", 0.0f);
  c.output_softcap = keys.number("final_logit_softcapping", 0.0f);
}

void read_family(const Gguf& file, const FamilyFacts& facts, const Keys& keys, ModelConfig& c) {
  if (facts.composition.width_scaled_embedding) {
    c.embedding_scale = std::sqrt(static_cast<float>(c.width));
  }
  // The files have no key for it: only the 27B models scale by width / heads.
  if ((c.family == Family::gemma2 && c.layers == 46) ||
      (c.family == Family::gemma3 && c.layers == 62)) {
    c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.width / c.heads));
  }
  switch (c.family) {
    case Family::gemma2:
      c.attention_softcap = keys.number("attn_logit_softcapping", 50.0f);
      c.output_softcap = keys.number("final_logit_softcapping", 30.0f);
      break;
    case Family::gpt2:
      c.learned_positions = true;
      break;
    case Family::opt:
      c.learned_positions = true;
      c.position_offset = 2;
      break;
    case Family::gptneox:
      c.parallel_residual = keys.find<bool>("use_parallel_residual").value_or(true);
      break;
    case Family::mpt:
      c.alibi_max_bias = keys.number("attention.max_alibi_bias", 0.0f);
      c.clamp_qkv = keys.number("attention.clamp_kqv", 0.0f);
      c.learned_positions = file.find_tensor("position_embd.weight") != nullptr;
      break;
    default:
      break;
  }
}

}  // namespace

ModelConfig read_config(const Gguf& file) {
  auto architecture = file.get<std::string_view>("general.architecture");
  const FamilyFacts* facts = family_of_gguf(architecture);
  require(facts != nullptr, ErrorCode::unsupported,
          "{}: unknown architecture '{}'; supported are {}", file.path().string(),
          printable(architecture), gguf_architectures());
  Keys keys(file, architecture);
  const std::size_t experts = keys.maybe_size("expert_count").value_or(0);
  if (experts > 0 && facts->family == Family::llama) facts = &facts_of(Family::mixtral);
  require(facts->composition.mixture == (experts > 0), ErrorCode::unsupported,
          "{}: {} experts in a model of {}, which is not supported; mixtures of qwen3moe, olmoe, "
          "gpt-oss, lfm2moe, qwen2moe, qwen35moe, qwen3next, glm4moe, granitemoe and llama are",
          file.path().string(), experts, architecture);
  ModelConfig c;
  compose(*facts, c);
  c.name = file.find<std::string_view>("general.name").value_or("");
  c.unsure_below = file.find<float>("ballast.unsure_below").value_or(0.0f);
  read_sizes(file, keys, c);
  c.experts = experts;
  if (experts > 0) read_experts(file, *facts, keys, c);
  check_layers(c, file.path().string());
  if (facts->composition.gated_attention) read_delta_rule(keys, c);
  c.sliding_windows.assign(c.layers, 0);
  c.rope.style = facts->gguf_rope;
  if (c.rope.style != RopeStyle::none) read_rope(file, keys, c);
  read_norms(file, keys, c);
  read_windows(*facts, keys, c);
  read_scales(keys, c);
  read_family(file, *facts, keys, c);
  c.tied_embeddings = file.find_tensor("output.weight") == nullptr;
  check_config(c, file.path().string());
  return c;
}

}  // namespace ballast
