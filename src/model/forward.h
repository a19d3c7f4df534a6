// The forward pass of all architectures; the model's configuration selects the parts.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/engine/model.h"
#include "model/activations.h"
#include "model/attention_port.h"
#include "model/feed_forward.h"
#include "model/layer_share.h"
#include "model/recurrent_layers.h"
#include "model/run.h"
#include "model/weights.h"

namespace ballast {

class Forward {
 public:
  static constexpr std::size_t kAll = static_cast<std::size_t>(-1);

  /// `depth`: the layers that run() passes, at most all. `on_neurons`: may be null.
  explicit Forward(const Model& model, std::size_t depth = kAll, OnNeurons on_neurons = {});

  const Model& model() const { return model_; }

  /// Moves the runs forward, each of another text, which attend to what `attention` has. The state
  /// after the last layer stays until the next call, for logits(). With a single run, the state may
  /// be wanted for its last `wanted` tokens only; for the others the last layer then only stores
  /// keys and values. Throws Error on tokens that the model does not know.
  void run(std::span<const Run> runs, Attention& attention, std::size_t wanted = kAll);
  /// The logits of tokens [first, first + out.rows) of the last run(), counted through the runs.
  /// Each token's logits can be computed once.
  void logits(std::size_t first, MutableMatrix out);
  /// The states of all tokens of the last run(), after the last norm.
  ConstMatrix states();

 private:
  void check(Token token) const;
  void embed(std::span<const Run> runs);
  /// The residual stream of row `at`, before the first layer.
  void embed(Token token, std::size_t position, std::size_t at);
  void find_rotations();
  /// Attention of one layer. Tokens before `first` only store keys and values; the pass goes on
  /// with tokens from `first`.
  void attend(std::size_t layer, std::size_t cache_layer, Attention& attention, std::size_t first);
  /// Keys and values of all tokens, queries of those from x_.first on.
  void project_qkv(std::size_t layer, std::size_t first, bool all_queries);
  /// Norms and rotations of the query and key heads.
  void place_heads(std::size_t layer, std::size_t cache_layer);
  /// Of gated attention: its output times the sigmoid of a gate.
  void gate_attention(const LayerWeights& weights);
  void normalise(const Norm& norm, const Matrix& from, Matrix& to) const {
    x_.normalise(config_, norm, from, to);
  }
  void add_block();

  const Model model_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const LayerShare* share_;  ///< null: all layers are here
  std::size_t depth_;
  Activations x_;
  FeedForward feed_forward_;
  RecurrentLayers recurrent_layers_;
  std::vector<std::size_t> positions_;     ///< of each token
  std::vector<const CacheShape*> shapes_;  ///< of each token; null: the cache rotates
};

}  // namespace ballast
