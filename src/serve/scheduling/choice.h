// One of the answers to a request, as it is generated.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ballast/engine/lookup.h"
#include "ballast/engine/model.h"
#include "ballast/engine/sampler.h"
#include "model/token_reader.h"
#include "serve/grammar/grammar.h"
#include "serve/grammar/token_texts.h"
#include "serve/scheduling/job.h"
#include "text/answer/answer_text.h"

namespace ballast::serve {

/// Draws tokens from logits, and turns them into text, until the answer ends.
class Choice {
 public:
  /// `positions`: of the model. `sequence`: that has read the job's prompt; `copy` is gone on with
  /// in its place, unless null. Job and sequence must outlive the choice.
  Choice(const Tokenizer& tokenizer, const Job& job, std::size_t number, std::size_t positions,
         Sequence& sequence, std::unique_ptr<Sequence> copy);

  /// The next token, from the logits after the last one. `texts`: of the vocabulary, where the
  /// answer is held to a form. Throws ApiError if no token can follow.
  Piece advance(std::span<const float> logits, const TokenTexts* texts);
  bool ended() const { return next_ == kNoToken; }
  /// To be read next, unless ended.
  Token next() const { return next_; }
  Sequence& sequence() { return *sequence_; }
  /// Reads next(), alone: drafts may help. The logits are valid until the next call.
  std::span<const float> read(Engine& engine);
  /// Call it before anything else is done with the sequence.
  void forget_drafts();
  /// The prompt and what was made.
  const std::vector<Token>& tokens() const { return past_; }

  /// Of the model, of the least likely token so far; 1 before the first.
  float least_probability() const { return least_; }

  std::optional<Lookup> lookup;  ///< where the job cites

 private:
  /// The tokens that come next close the thoughts.
  void close_thoughts();

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  std::size_t number_;
  std::size_t positions_;
  bool shows_end_;
  Sampler sampler_;
  AnswerText text_;
  std::optional<GrammarReader> held_;           ///< what was made, where it is held to a grammar
  std::optional<std::size_t> thinking_budget_;  ///< until thoughts are closed for it
  std::vector<Token> closing_;  ///< tokens to come that close thoughts, the next last
  std::vector<Token> past_;
  std::size_t made_ = 0;
  float least_ = 1;
  Token next_ = kNoToken;
  std::unique_ptr<Sequence> own_;
  Sequence* sequence_;
  std::optional<TokenReader> reader_;  ///< once read() was called
};

}  // namespace ballast::serve
