// A model on disk: a GGUF file or a Hugging Face folder, seen the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/engine/gguf.h"
#include "ballast/engine/model_config.h"
#include "ballast/engine/safetensors.h"
#include "ballast/engine/tensor.h"

namespace ballast {

/// The tensors of a model. H = heads, K = kv_heads, d = key_dim, e = value_dim, F = dense_width().
enum class Weight : std::uint8_t {
  token_embedding,      ///< [vocabulary, width]
  position_embedding,   ///< [max_positions + position_offset, width]
  output_norm,          ///< [width]
  output,               ///< [vocabulary, width]; the embedding itself when tied
  attention_norm,       ///< [width]; this and all below once a layer
  query,                ///< [H·d, width]
  key,                  ///< [K·d, width]
  value,                ///< [K·e, width]
  query_norm,           ///< [d]; with joint_head_norms [H·d]
  key_norm,             ///< [d]; with joint_head_norms [K·d]
  attention_output,     ///< [width, H·e]
  post_attention_norm,  ///< [width]
  ffn_norm,             ///< [width]
  ffn_gate,             ///< [F, width]
  ffn_up,               ///< [F, width]
  ffn_down,             ///< [width, F]
  post_ffn_norm,        ///< [width]
  sink_logits,          ///< [H]
  attention_gate,       ///< [H·e, width]
  conv_in,           ///< short_conv [3·width, width]: gates before and after the convolution, its
                     ///< input; delta_rule [channels, width]: queries, keys, values
  conv,              ///< [channels, conv_width]
  conv_out,          ///< [width, width]; delta_rule [width, V·v], V value heads of dimension v
  delta_gate,        ///< [V·v, width]: of the output
  delta_beta,        ///< [V, width]: how far a token corrects
  delta_decay,       ///< [V, width]
  delta_decay_bias,  ///< [V]
  delta_rate,        ///< [V]: of the decay; its logarithm in folders, its negative in GGUF files
  delta_norm,        ///< [v]
  shared_gate,       ///< [1, width]: of the expert that all tokens use, whose weights are ffn_*;
                     ///< without it that expert counts whole
  router,            ///< [experts, width]
  router_choice,     ///< [experts]: added to weights where experts are chosen by them
  expert_gate,       ///< [expert_width, width]; this and all below once an expert
  expert_up,         ///< [expert_width, width]
  expert_down,       ///< [width, expert_width]
};
inline constexpr int kWeights = static_cast<int>(Weight::expert_down) + 1;

std::string_view to_string(Weight weight);

/// A bias has as many numbers as its weight has rows (a norm's: as its weight has numbers).
enum class Part : std::uint8_t { weight, bias };

/// Where a tokenizer can be read from: exactly one is set, or none.
struct TokenizerSource {
  const Gguf* gguf = nullptr;             ///< the tokenizer.* keys of its metadata
  std::filesystem::path tokenizer_json;   ///< Hugging Face tokenizers
  std::filesystem::path tokenizer_model;  ///< SentencePiece, when there is no tokenizer.json
  std::filesystem::path folder;           ///< where tokenizer_config.json and the like may be
};

/// Opening maps the files and checks that every tensor the model needs is there in the right shape;
/// no weight is read but those that loaded_as() changes. Views stay valid as long as this object
/// (or what it was moved to).
class ModelFile {
 public:
  /// `path` is a .gguf file (of a model split over several: the first), a Hugging Face folder, or
  /// a .safetensors file or index inside one.
  /// Throws Error naming the file and what is missing, unknown or wrong.
  explicit ModelFile(const std::filesystem::path& path);

  const ModelConfig& config() const { return config_; }

  /// A weight of a layer (of the model as a whole: layer 0); null if this model has none.
  /// Quantized types are [rows, columns] of whole blocks.
  const TensorView* find(Weight weight, std::size_t layer = 0, Part part = Part::weight,
                         std::size_t expert = 0) const;
  /// The same, but absence is an Error.
  const TensorView& at(Weight weight, std::size_t layer = 0, Part part = Part::weight) const;

  /// Reads every weight and throws Error naming the file and the first tensor with a NaN or an
  /// infinity, if there is one. Opening does not do so: it would read the whole file.
  void require_finite() const;

  /// Names of the files' tensors that the model does not use.
  std::vector<std::string> unused() const;
  /// Bytes of tensors that are copied, not mapped: their rows or their type had to change.
  std::size_t copied_bytes() const;
  /// Bytes of all tensors of the files.
  std::size_t bytes() const;
  /// The files that hold them, all of them mapped.
  std::vector<std::filesystem::path> files() const;
  TokenizerSource tokenizer() const;
  /// Null if the model is a Hugging Face folder.
  const Gguf* gguf() const { return gguf_.get(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  friend class WeightResolver;

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::unique_ptr<Gguf> gguf_;
  std::unique_ptr<Safetensors> safetensors_;
  ModelConfig config_;
  std::unordered_map<std::size_t, TensorView> tensors_;
  std::set<std::string> used_;                 ///< names of the files' tensors
  std::deque<std::vector<std::byte>> copies_;  ///< tensors whose rows or type had to change
};

}  // namespace ballast
