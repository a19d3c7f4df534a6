// One description of a model, whichever file it comes from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

class Gguf;

/// Architectures that the library can run. Mistral and Ministral are `mistral` in Hugging Face
/// folders and `llama` in GGUF files, which do not tell them apart.
enum class Family : std::uint8_t {
  llama,
  mistral,
  qwen2,
  qwen3,
  gemma2,
  phi3,
  opt,
  gptneox,
  mpt,
  gemma3,
  smollm3,
  granite,
  granite4,
  olmo2,
  olmo3,
  cohere2,
  glm4,
  internlm2,
  starcoder2,
  exaone4,
  seed_oss,
  hunyuan,
  ernie45,
  mistral3,
  gpt2,
  mixtral,
  qwen3moe,
  olmoe,
  gpt_oss,
  lfm2,
  lfm2moe,
  qwen2moe,
  qwen35moe,
  qwen35,
  qwen3next,
  glm4moe,
  granitemoe,
};

std::string_view to_string(Family family);

enum class NormKind : std::uint8_t {
  rms,   ///< x / sqrt(mean(x²) + ε) · w
  layer  ///< (x - mean) / sqrt(variance + ε) · w + b
};

enum class Activation : std::uint8_t {
  silu,
  gelu,       ///< exact: x·Φ(x)
  gelu_tanh,  ///< the tanh approximation
  relu,
  clamped_silu  ///< gated, of gpt-oss: see activate()
};

/// What a layer does before its feed-forward block.
enum class LayerKind : std::uint8_t {
  attention,
  short_conv,  ///< a gated convolution over the last conv_width tokens (LFM2)
  delta_rule   ///< a matrix a head that each token corrects: Gated DeltaNet (Qwen 3.5)
};

/// Which numbers of a head turn together.
enum class RopeStyle : std::uint8_t {
  none,
  halves,  ///< i and i + dimension/2 ("neox"; Hugging Face)
  pairs    ///< 2i and 2i + 1 (GGUF files of the llama architecture: their rows are permuted so)
};

/// Rotary position embedding of the first `dimension` numbers of each query and key head. Every
/// kind of scaling (linear, llama3, yarn, longrope) comes down to divisors of the frequencies and a
/// factor on the rotated vectors.
struct Rope {
  RopeStyle style = RopeStyle::none;
  std::size_t dimension = 0;  ///< even, at most key_dim
  float base = 10000.0f;
  std::vector<float> divisors;         ///< of each of the dimension/2 frequencies; empty: all 1
  std::vector<float> long_divisors;    ///< take their place in long contexts; empty: no difference
  std::size_t original_positions = 0;  ///< contexts longer than this are long
  float magnitude = 1.0f;              ///< cosines and sines are multiplied by this

  /// Radians per position of each of the dimension/2 rotations, base^(-2i/dimension) / divisor, for
  /// a model that will see up to `context` tokens.
  std::vector<float> frequencies(std::size_t context) const;
};

/// What a forward pass must know. Dimensions are in numbers, positions in tokens.
struct ModelConfig {
  Family family = Family::llama;
  std::string name;  ///< as the file calls the model; may be empty

  std::size_t layers = 0;
  std::size_t width = 0;  ///< of the residual stream
  std::size_t heads = 0;
  std::size_t kv_heads = 0;  ///< divides heads
  std::size_t key_dim = 0;   ///< of one query or key head
  std::size_t value_dim = 0;
  /// Of each layer; empty: all attend.
  std::vector<LayerKind> kinds;
  LayerKind kind(std::size_t layer) const {
    return kinds.empty() ? LayerKind::attention : kinds[layer];
  }
  /// The layers that attend, from the first: those that a cache has.
  std::vector<std::size_t> attending() const;
  std::size_t conv_width = 0;  ///< tokens that a short convolution sees, its own included
  /// Of the delta rule: value heads share key heads, which there are fewer of or as many.
  std::size_t delta_key_heads = 0, delta_value_heads = 0, delta_key_dim = 0, delta_value_dim = 0;
  bool delta_heads_in_turn = false;  ///< value heads have key heads 0, 1, …, 0, 1, … (GGUF)
  /// Channels of the convolution of a recurrent layer.
  std::size_t conv_channels(std::size_t layer) const {
    return kind(layer) == LayerKind::delta_rule
               ? 2 * delta_key_heads * delta_key_dim + delta_value_heads * delta_value_dim
               : width;
  }
  bool gated_attention = false;  ///< what is attended to is multiplied by a gate's sigmoid
  bool attention_sinks = false;  ///< each query head has a logit without key and value (gpt-oss)

  std::size_t ffn_width = 0;     ///< of layers without experts
  std::size_t expert_width = 0;  ///< the ffn_width of an expert
  std::size_t shared_width = 0;  ///< of one more expert, which all tokens use; 0: there is none
  std::size_t experts = 0;       ///< feed-forward blocks of a layer of which tokens choose; 0: one
  std::size_t experts_used = 0;  ///< by each token, 1 to experts
  std::size_t dense_layers = 0;  ///< the first so many have one block instead of experts
  bool has_experts(std::size_t layer) const { return experts > 0 && layer >= dense_layers; }
  /// Of the block that all tokens use, beside experts or instead of them; 0: a layer has none.
  std::size_t dense_width(std::size_t layer) const {
    return has_experts(layer) ? shared_width : ffn_width;
  }
  bool experts_share_weight = false;  ///< the weights of those used are scaled to a sum of 1
  bool sigmoid_router = false;        ///< weights are sigmoids, not a softmax over all experts
  float experts_scale = 1.0f;         ///< of the weights of those used
  std::size_t vocabulary = 0;         ///< rows of the embedding; may exceed the tokenizer's tokens
  std::size_t max_positions = 0;

  NormKind norm = NormKind::rms;
  float norm_epsilon = 1e-5f;
  float norm_offset = 0.0f;  ///< added to every norm weight (Gemma as Hugging Face stores it: 1)
  Activation activation = Activation::silu;
  bool gated_ffn = true;           ///< down(act(gate x) · up x); else down(act(up x))
  bool parallel_residual = false;  ///< x + attention(norm x) + ffn(norm' x) (GPT-NeoX)
  bool joint_head_norms = false;   ///< query and key norms are over all heads together (OLMo 2)
  bool norms_after_rope = false;   ///< query and key norms come after the rotation (Hunyuan)
  bool tied_embeddings = false;    ///< the output matrix is the embedding

  Rope rope;
  /// Of some layers (Gemma 3's that slide); style none where these do not rotate (SmolLM3).
  Rope second_rope;
  std::vector<bool> takes_second_rope;  ///< of each layer; empty: no layer does
  const Rope& rope_of(std::size_t layer) const {
    return !takes_second_rope.empty() && takes_second_rope[layer] ? second_rope : rope;
  }
  bool learned_positions = false;   ///< row position + position_offset of a table is added
  std::size_t position_offset = 0;  ///< OPT: 2
  float alibi_max_bias = 0.0f;      ///< 0: no ALiBi; see alibi_slopes()
  /// Of each layer: W > 0 hides keys at or before position(query) - W; 0 hides none.
  std::vector<std::size_t> sliding_windows;

  float attention_scale = 0.0f;    ///< of <query, key>, usually 1/sqrt(key_dim)
  float attention_softcap = 0.0f;  ///< c > 0: attention logits become c·tanh(x/c)
  float output_softcap = 0.0f;     ///< the same for the model's logits
  /// Ministral 3: b > 0 multiplies queries by 1 + b·ln(1 + floor(position / original_positions)).
  float query_growth = 0.0f;
  float embedding_scale = 1.0f;  ///< Gemma: sqrt(width)
  float residual_scale = 1.0f;   ///< of what each block adds (Granite)
  float output_scale = 1.0f;     ///< of the model's logits
  float clamp_qkv = 0.0f;        ///< c > 0: projections are cut to [-c, c] (MPT)

  /// A short answer with a token less probable than this is likely to be wrong, as the file says of
  /// its model (GGUF's key "ballast.unsure_below"); within [0, 1], 0: it says nothing.
  float unsure_below = 0.0f;
};

/// The slope of each head (Press et al. 2022), also for numbers of heads that are no power of two.
std::vector<float> alibi_slopes(std::size_t heads, float max_bias);

/// From GGUF metadata (and its tensors of rope factors). Throws Error naming the file, the missing
/// or unusable key, and for an unknown architecture those that are supported.
ModelConfig read_config(const Gguf& file);

/// From a Hugging Face config.json. Throws Error likewise.
ModelConfig read_config(const std::filesystem::path& config_json);

}  // namespace ballast
