// The forward pass of all architectures; the model's configuration selects the parts.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ballast/engine/model.h"
#include "model/layer_share.h"
#include "model/weights.h"

namespace ballast {

/// Consecutive tokens of one sequence.
struct Run {
  Sequence* sequence = nullptr;
  std::span<const Token> tokens;
  /// When set, the tokens read the text again, from this position of the model on; see
  /// Scoring::replay. The only run of its call.
  std::optional<std::size_t> replay_from = {};
  bool question = false;  ///< with replay_from: see Scoring::replay_question
  /// When set, the tokens are those of joined documents at these places, read again: see
  /// JoinedDocuments. The only run of its call.
  std::span<const Position> places = {};
};

/// The matrices of a pass, one row per token.
struct ForwardScratch {
  ForwardScratch(const ModelConfig& config, std::size_t tokens);

  Matrix residual;  ///< the residual stream
  Matrix normed;    ///< the input of a block: attention or feed-forward
  Matrix query, key, value, attended;
  Matrix block;  ///< the output of a block, added to the residual stream
  Matrix gate, up;
  Matrix conv;                                 ///< what a convolution is given, see Weight::conv_in
  Matrix attention_gate;                       ///< of gated attention
  Matrix delta_gate, delta_beta, delta_decay;  ///< of the delta rule
  Matrix router, expert_in, expert_out;        ///< with experts: weights; the rows of one
  Matrix rotations[2];  ///< cosines and sines of the tokens' positions, by either rotation
  Matrix scores;        ///< of the tokens' entries, a KV head each: see Calibration
  std::size_t tokens = 0;

  /// Bytes for that many tokens.
  static std::size_t bytes(const ModelConfig& config, std::size_t tokens);
};

class Forward {
 public:
  static constexpr std::size_t kAll = static_cast<std::size_t>(-1);

  explicit Forward(const Model& model);

  const Model& model() const { return model_; }

  ReplayWording replay_wording;  ///< see Engine::set_replay_wording
  /// Of each layer, what Scoring::start_replay takes. Kept once a stream has read a chunk again:
  /// every chunk wants them. Empty before.
  std::vector<Matrix> output_grams;

  /// Layers that run() passes; all, unless someone wants what the first ones do.
  std::size_t depth;

  /// When set, is given the neurons of each layer's feed-forward block, tokens × dense_width, after
  /// their activation, and may change them. For experiments.
  std::function<void(std::size_t layer, MutableMatrix neurons)> on_neurons;

  /// Moves the runs forward, each of another sequence. The state after the last layer stays until
  /// the next call, for logits(). With a single run, the state may be wanted for its last `wanted`
  /// tokens only; for the others the last layer then only stores keys and values.
  /// `on_attention`: called after each layer's attention, all runs together, rows counted from 0.
  void run(std::span<const Run> runs, std::size_t wanted = kAll,
           const OnAttention& on_attention = {});
  /// Reads a rank's share of a text into an empty sequence, layer by layer, `chunk` tokens at once.
  /// `begins`: where the shares begin, and the end of the text. The state of the share's last
  /// token stays, as that of token `tokens of the last chunk` - 1; returns that number.
  std::size_t read_share(Sequence& sequence, std::span<const Token> share,
                         std::span<const std::size_t> begins, std::size_t chunk,
                         const std::function<void(std::size_t layers)>& progress);
  /// The logits of tokens [first, first + out.rows) of the last run(), counted through the runs.
  /// Each token's logits can be computed once.
  void logits(std::size_t first, MutableMatrix out);
  /// The states of all tokens of the last run(), after the last norm.
  ConstMatrix states();

 private:
  void check(const Run& run) const;
  void embed(std::span<const Run> runs);
  /// The residual stream of row `at`, before the first layer.
  void embed(Token token, std::size_t position, std::size_t at);
  /// The rotations of the tokens' positions.
  void turn(std::span<const Run> runs);
  /// The same by `positions_` and `shapes_`.
  void find_rotations();
  /// Attention of one layer. Tokens before `first` only store keys and values; the pass goes on
  /// with tokens from `first`.
  void attention(std::size_t layer, std::size_t cache_layer, std::span<const Run> runs,
                 std::size_t first);
  void attend(std::size_t cache_layer, std::span<const Run> runs);
  /// The same where each rank has a part of the cache; the last takes the tokens in.
  void attend_over_ranks(std::size_t cache_layer, const Run& run);
  /// The delta rule in the place of attention, likewise.
  void delta_rule(std::size_t layer, std::size_t state, std::span<const Run> runs,
                  std::size_t first);
  /// A gated short convolution in the place of attention; `state`: its number among the recurrent
  /// layers. The pass goes on with tokens from `first`.
  void short_conv(std::size_t layer, std::size_t state, std::span<const Run> runs,
                  std::size_t first);
  /// What follows attention in a layer, from its output in `block` on.
  void finish_layer(std::size_t layer);
  /// Scores what a cache has just taken, rows [first, first + count) of the pass, if it wants that.
  void note_scores(std::size_t cache_layer, Cache& cache, std::size_t first, std::size_t count);
  void feed_forward(std::size_t layer);
  void dense_feed_forward(std::size_t layer, MutableMatrix out);
  /// Of a mixture, to what its experts say.
  void add_shared_expert(std::size_t layer);
  /// The feed-forward of a mixture: each expert reads the rows of the tokens that chose it.
  void mix_experts(std::size_t layer);
  void choose_experts(std::size_t layer);
  /// Norms and rotations of the query and key heads.
  void place_heads(std::size_t layer, std::size_t cache_layer);
  void normalise_rows(const Norm& norm, const Matrix& x, Matrix& out) const;
  void add_block();
  /// Of a second reading: what its tokens' attention counts for, before a layer.
  void weigh_queries();
  /// The rows of the active tokens, [from_, tokens_).
  MutableMatrix rows(Matrix& m) const { return m.view().slice(from_, tokens_ - from_); }
  ConstMatrix rows(const Matrix& m) const { return m.view().slice(from_, tokens_ - from_); }
  /// Calls body(i) for rows [from, tokens_) of `width` elements, in parallel if that pays.
  template <typename Body>
  void for_rows(std::size_t from, std::size_t width, Body&& body) const;

  const Model model_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const LayerShare* share_;  ///< null: all layers are here
  ForwardScratch scratch_;
  std::vector<float> query_weights_;    ///< of a second reading: 1 / |residual| of each token
  std::size_t tokens_ = 0;              ///< of this pass
  std::size_t from_ = 0;                ///< the first active token
  std::vector<std::size_t> positions_;  ///< of each token
  std::vector<float> state_;            ///< of a run's recurrent layer, as it is found
  std::vector<float> mixed_;            ///< of a run: queries, keys and values of the delta rule
  struct Choice {
    std::size_t token;
    float weight;
  };
  std::vector<std::vector<Choice>> chosen_;  ///< of each expert
  /// Of each token; null: the cache rotates.
  std::vector<const CacheShape*> shapes_;
};

}  // namespace ballast
