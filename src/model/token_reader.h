// Reads an answer's tokens, some of them before they are chosen: see drafts.h.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/engine/generate.h"
#include "ballast/engine/model.h"
#include "ballast/matrix.h"
#include "model/drafts.h"

namespace ballast {

/// Gives the logits behind each token of an answer. Drafts change how long that takes, no bit of
/// the logits. The sequence may be ahead of the answer until forget_drafts().
class TokenReader {
 public:
  /// Both must outlive it. Until forget_drafts() the sequence is read by it alone.
  TokenReader(Engine& engine, Sequence& sequence, const GenerateOptions& options);

  /// The answer goes on with this token. False if the model has no position for it.
  bool read(Token token);
  /// Behind the last token that read() took.
  std::span<const float> logits() const { return {rows_[at_].data(), rows_.cols()}; }
  /// The text and the answer, as far as they are read.
  std::span<const Token> text() const;
  /// Over the model so far.
  std::size_t passes() const { return passes_; }
  /// Drops what the sequence has read beyond the answer.
  void forget_drafts();

 private:
  /// Tokens that may follow `token`.
  std::span<const Token> draft(Token token);

  Engine& engine_;
  Sequence& sequence_;
  const OnAttention& on_attention_;
  const bool drafts_;
  PromptLookup lookup_;
  DraftLength length_;
  Matrix rows_;                 ///< logits; row 0: of the token read last without a draft
  std::vector<Token> drafted_;  ///< read by the sequence, row i + 1 behind drafted_[i]
  std::size_t at_ = 0;          ///< the drafted tokens that the answer took
  double seconds_ = 0;          ///< of the pass that read them
  std::size_t passes_ = 0;
};

}  // namespace ballast
