// What each model family is: its tensors' names and layouts, and what its files do not say.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ballast/engine/model_config.h"
#include "ballast/engine/model_file.h"

namespace ballast {

enum class Presence : std::uint8_t { never, optional, always };

/// The row order of a tensor that fuses several weights.
enum class Fusion : std::uint8_t {
  none,
  rows,           ///< all rows of the first, then all of the second, …
  rows_per_head,  ///< for each KV head the rows of its queries, its key, its value (GPT-NeoX)
  experts,        ///< of all experts one after another: see StackedExperts
  gated_heads,    ///< for each head the rows of its query, those of its gate (Qwen 3.5)
  key_heads,      ///< for each key head of the delta rule its rows of each weight (Qwen3-Next)
  turns,          ///< as experts, rows of expert_gate and expert_up taking turns (gpt-oss)
};

/// One tensor of a family's files. "{}" in a name stands for the layer; ".weight" or ".bias"
/// follow.
struct TensorRule {
  Weight first;  ///< the weight; for fused tensors the first of them (query, ffn_gate)
  std::string_view gguf;
  std::string_view hf;
  Presence bias = Presence::never;
  Presence weight = Presence::always;
  Fusion gguf_fusion = Fusion::none;
  Fusion hf_fusion = Fusion::none;
  bool hf_transposed = false;  ///< folders have the weight as [columns, rows] (GPT-2)
  bool hf_bare = false;        ///< folders have no ".weight" behind the name
  bool shared = false;         ///< of ffn_*: of layers with experts; others have another rule
};

/// Which layers take the second rotation, and what it is.
enum class SecondRope : std::uint8_t {
  none,
  sliding,  ///< layers that slide have a rotation of their own
  global,   ///< layers that do not slide do not rotate, if any slides
  listed,   ///< layers of no_rope_layers, or every fourth, do not rotate
};

/// What a forward pass does that no key of the files says.
struct Composition {
  NormKind norm = NormKind::rms;
  Activation activation = Activation::silu;  ///< GGUF; folders name it
  bool gated_ffn = true;
  bool parallel_residual = false;
  bool joint_head_norms = false;
  bool norms_after_rope = false;
  bool width_scaled_embedding = false;  ///< by sqrt(width)
  float hf_norm_offset = 0.0f;
  RopeStyle hf_rope = RopeStyle::halves;
  SecondRope second_rope = SecondRope::none;
  /// Layer i slides unless (i + 1) is a multiple of this, where the file does not list layers. 0:
  /// every layer; 1: none, in folders that do not list them.
  std::size_t window_period = 1;
  bool mixture = false;  ///< there are experts
  Presence shared_expert = Presence::never;
  bool sigmoid_router = false;
  bool attention_sinks = false;
  bool gated_attention = false;
  bool granite_scales = false;  ///< of attention and residual stream; logits are divided by theirs
  bool gguf_shares_weight = true;  ///< the weights of the experts used are scaled to a sum of 1
  bool gguf_yarn_truncates = true;
  float gguf_sliding_base = 0.0f;  ///< of the layers that slide; 0: as of the others
  /// Keys that config.json may leave out, as JSON.
  std::string_view hf_defaults = "{}";
};

struct FamilyFacts {
  Family family;
  std::string_view name;      ///< for people
  std::string_view gguf;      ///< general.architecture; empty: no such files
  std::string_view hf;        ///< model_type of config.json; empty: none
  std::string_view hf_class;  ///< as config.json's "architectures" has it
  RopeStyle gguf_rope;        ///< as llama.cpp's converter lays out the rows
  std::span<const TensorRule> rules;
  Composition composition = {};
};

/// Takes over what the family's composition says.
void compose(const FamilyFacts& facts, ModelConfig& config);
/// Gives the layers that slide their windows; `period` as Composition::window_period.
void spread_windows(std::size_t window, std::size_t period, ModelConfig& config);
/// Says which layers take the second rotation, once the windows are known.
void spread_ropes(const FamilyFacts& facts, ModelConfig& config);

std::span<const FamilyFacts> families();
const FamilyFacts& facts_of(Family family);

/// Null if unknown.
const FamilyFacts* family_of_gguf(std::string_view architecture);
const FamilyFacts* family_of_hf(std::string_view model_type);

/// "llama, qwen2, …", for messages.
std::string gguf_architectures();
std::string hf_architectures();

}  // namespace ballast
