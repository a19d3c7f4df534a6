// Choosing the next token from a model's logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ballast/engine/model.h"

namespace ballast {

/// What to choose from, in the order in which it is applied: bias and penalties change logits;
/// top-k, top-p and min-p, each if set, leave out tokens by the probabilities of what is left at
/// temperature 1; temperature then flattens or sharpens what remains.
struct SamplingOptions {
  float temperature = 0.0f;  ///< at least 0; 0: always the likeliest token (greedy)
  std::size_t top_k = 0;     ///< keep the k likeliest; 0: all
  float top_p = 1.0f;        ///< keep the fewest likeliest that have this mass together; (0, 1]
  float min_p = 0.0f;        ///< leave out those below this fraction of the likeliest; [0, 1)
  /// Logits of tokens that came before are divided by this when positive and multiplied by it when
  /// negative (Keskar et al. 2019); at least 1; 1: no penalty.
  float repetition_penalty = 1.0f;
  std::size_t repetition_window = 64;  ///< the last tokens that count for it
  /// Taken from the logit of a token that this sampler has chosen before: once, and once for each
  /// time it was chosen (OpenAI's penalties); finite.
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<Token, float>> logit_bias = {};  ///< added to logits of tokens; finite
  std::uint64_t seed = 0;
};

/// A token and the logarithm of its probability.
struct TokenChance {
  Token token = 0;
  float log_probability = 0.0f;
};

/// Chooses tokens of one sequence. The i-th choice depends on the seed, i and the logits alone.
class Sampler {
 public:
  /// Throws Error on values out of range.
  explicit Sampler(const SamplingOptions& options);

  const SamplingOptions& options() const { return options_; }

  /// The next token; its log-probability is the model's own, at temperature 1 and before any
  /// bias or penalty. `history`: the tokens so far, the latest last, those that this sampler chose
  /// among them. Throws Error if no logit is finite.
  TokenChance sample(std::span<const float> logits, std::span<const Token> history);

 private:
  bool changes_logits() const;
  /// Fills logits_ from the model's.
  void change_logits(std::span<const float> logits, std::span<const Token> history);
  /// Fills choices_, the likeliest first.
  void keep_likely();
  void keep_top_p(float top);

  SamplingOptions options_;
  std::uint64_t drawn_ = 0;
  std::vector<float> logits_;         ///< after bias and penalties
  std::vector<TokenChance> choices_;  ///< log_probability: logit after bias and penalties
};

/// The `count` likeliest tokens, likeliest first, ties by id.
std::vector<TokenChance> likeliest(std::span<const float> logits, std::size_t count);

/// ln of the sum of e^logit, to about seven digits.
double log_sum_exp(std::span<const float> logits);
/// -ln of the probability that the logits give to `token`, in nats.
double token_loss(std::span<const float> logits, Token token);

}  // namespace ballast
