// What C and Python share: a model with its tokenizer, and a text that it reads and continues.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/generate.h"
#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// A model with the tokenizer that its files hold. Never changes.
struct TextModel {
  /// Throws Error if either cannot be read or they do not fit together.
  explicit TextModel(const std::string& path);

  Model model;
  Tokenizer tokenizer;
};

/// One text: its sequence, the engine that moves it, and the logits of its last token.
class Session {
 public:
  /// Throws Error as Sequence does.
  Session(std::shared_ptr<const TextModel> model, const CacheOptions& options);
  /// Goes on from a cache whose prompt has ended.
  Session(std::shared_ptr<const TextModel> model, Cache cache, std::shared_ptr<ThreadPool> pool);

  const TextModel& model() const { return *model_; }
  const Cache& cache() const { return sequence_.cache(); }
  Cache& cache() { return sequence_.cache(); }
  /// Tokens read; those of an answer count once they are read.
  std::size_t tokens() const { return sequence_.tokens(); }
  /// Of the last token read; empty before the first, and after loading.
  std::span<const float> logits() const { return logits_; }
  bool prompt_finished() const { return sequence_.prompt_finished(); }

  /// Reads what is unread of an answer, then these tokens.
  void read(std::span<const Token> tokens);
  /// The same, and -ln of the probability that the text before gave to each token, in nats. There
  /// must be text before. One number a token.
  std::vector<float> score(std::span<const Token> tokens);
  /// Once; reads the text again where the method wants that. `chat`: the text stands in the model's
  /// chat template.
  void finish_prompt(bool chat);
  /// A copy that goes on by itself, on the same pool. Throws Error unless the prompt has ended.
  Session clone() const;
  /// Throws Error unless the prompt has ended.
  void save(const std::string& path, std::string_view form) const;

  /// Begins an answer; ends the prompt first if that has not been done. Nothing else may be done
  /// with the session until take_in().
  Generation generate(const GenerateOptions& options, bool chat);
  /// The session goes on after the answer.
  void take_in(const Generation& generation);

 private:
  std::vector<float> prefill(std::span<const Token> tokens, PrefillOptions options);
  void remember(std::span<const Token> tokens);
  void set_replay_wording();

  std::shared_ptr<const TextModel> model_;
  std::shared_ptr<ThreadPool> pool_;
  Engine engine_;
  Sequence sequence_;
  std::vector<float> logits_;
  std::vector<Token> history_;  ///< the last tokens, for the repetition penalty
  std::vector<Token> unread_;   ///< of an answer
};

}  // namespace ballast
