// Continuing a text token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/engine/sampler.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// The words with which this model is asked to read a text again (KVzip's): in a chat, if it has a
/// template, a request to repeat it and the switch to the assistant; else a line end.
ReplayWording replay_wording(const Tokenizer& tokenizer, bool chat);

struct GenerateOptions {
  SamplingOptions sampling;
  std::size_t max_tokens = 512;   ///< 0: as many as the model has positions for
  std::vector<std::string> stop;  ///< the text ends before the first of these that would appear
  bool chat = false;              ///< an answer in a chat: its thoughts may hold stop strings
  bool ignore_end = false;        ///< go on after the model's end tokens
  bool text_start = true;         ///< drop the space that some vocabularies put before a text
  std::size_t alternatives = 0;   ///< likeliest tokens to be reported for each place
  /// Copies what may come next from the text and reads it in one pass, where that is faster. The
  /// answer is the same to the bit. Not with on_attention, nor where tokens cannot be taken back.
  bool drafts = true;
  OnAttention on_attention = {};  ///< is shown every layer's attention of each token made
};

/// Why a text ended.
enum class Finish : std::uint8_t {
  end,        ///< the model ended it
  stop,       ///< a stop string appeared
  length,     ///< max_tokens were made
  positions,  ///< the model has no position for another token
  cancelled
};

std::string_view to_string(Finish finish);

struct GeneratedToken {
  TokenChance chosen;
  std::vector<TokenChance> likeliest;  ///< `alternatives` of them, by the model's own probability
};

struct Generated {
  std::string text;  ///< valid UTF-8, without the stop string
  std::vector<GeneratedToken> tokens;
  Finish finish = Finish::end;
  /// Whether the sequence has not read the last token yet: the case unless the model ended the
  /// text. Read it first if the sequence is to go on.
  bool last_unread = false;
  /// Over the model, for all tokens but the first: fewer than those where drafts were accepted.
  std::size_t passes = 0;
};

/// The model's own probability of the least likely token that was chosen; 1 where there is none.
float least_probability(const Generated& made);

/// Continues `sequence` a token at a time, for callers who draw the text rather than have it sent.
class Generation {
 public:
  /// As for generate(). Engine and sequence must outlive it and do nothing else meanwhile.
  Generation(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer,
             std::vector<float> logits, const GenerateOptions& options);
  ~Generation();
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;

  /// Makes a token. `text`: what became certain with it, perhaps nothing. False at the end.
  bool step(std::string& text);
  /// Makes the rest. `on_text` receives each piece of text, never an empty one, and ends the text
  /// by returning false.
  const Generated& run(const std::function<bool(std::string_view)>& on_text = {});
  /// Ends the text here, unless it has ended.
  void cancel();
  bool done() const;
  /// All that was made so far.
  const Generated& result() const;
  /// Of the last token that the sequence has read.
  std::span<const float> logits() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Continues `sequence`. `logits`: of the last token that it has read. `on_text`: see
/// Generation::run. Throws Error as Engine and Sampler do.
Generated generate(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer,
                   std::vector<float> logits, const GenerateOptions& options,
                   const std::function<bool(std::string_view)>& on_text = {});

}  // namespace ballast
