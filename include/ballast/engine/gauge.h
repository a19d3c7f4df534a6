// What a compressed cache costs on its own text: how far what it answers is from what the exact
// cache answers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/model.h"

namespace ballast {

/// What a gauge says of a cache.
struct GaugeReading {
  /// Mean over the tokens read of the KL divergence of the next token, from the exact cache's to
  /// this one's, in nats; from 0. Tokens but the 64 likeliest count as one.
  double kl = 0;
  std::size_t tokens = 0;  ///< that it is the mean of
  double seconds = 0;      ///< that reading them with both caches took
};

/// "answers as from the whole cache", "a little is lost", "much is lost".
std::string_view word_of(const GaugeReading& reading);
/// The same with the figure, and a larger size where much is lost and the policy has a share:
/// "much is lost: KL 0.4; try 1/4".
std::string to_text(const GaugeReading& reading, const Policy& policy);

/// Reads passages from all over a text again, behind it, first with its exact cache, then with what
/// a method made of it. Both caches stay as they are: the passages stand in a cache beside. It
/// took 7% of the time of reading 6,800 tokens; its share is larger for shorter texts.
class Gauge {
 public:
  /// Why texts cannot be gauged with these options; empty: they can. Wanted are absolute positions,
  /// protocol prefill, a method that drops something, and a model whose layers all attend.
  static std::string why_not(const Model& model, const CacheOptions& options);

  /// `wording`: with which the model is asked to read a text again.
  explicit Gauge(ReplayWording wording);

  /// Before the prompt ends. Nothing is noted of texts under 128 tokens, or whose tokens are not
  /// known.
  void read_exact(Engine& engine, const Sequence& exact);
  /// After it, as often as there are caches of the same text. None: nothing was noted.
  std::optional<GaugeReading> read(Engine& engine, const Sequence& compressed);

 private:
  /// The next token as the exact cache has it.
  struct Expected {
    std::vector<Token> likeliest;
    std::vector<double> logs;  ///< of their probabilities
    double rest = 0;           ///< probability of all others
  };

  ReplayWording wording_;
  std::vector<Token> tokens_;       ///< wording and passages
  std::vector<bool> counts_;        ///< of each token: whether what follows it is compared
  std::vector<Expected> expected_;  ///< of those that count
  double seconds_ = 0;              ///< of the exact cache
};

}  // namespace ballast
