// What a model writes, taken apart: thoughts, calls of functions, and the text of the answer.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "text/answer/channels.h"
#include "text/answer/stop_filter.h"
#include "text/answer/thoughts.h"
#include "text/answer/tool_calls.h"

namespace ballast {

struct AnswerOptions {
  bool chat = false;           ///< of an answer in a chat: it may have channels and thoughts
  bool thoughts_open = false;  ///< the prompt ends within thoughts
  bool split_thoughts = true;  ///< thoughts come apart; else they stay in the text, with their tags
  bool text_start = true;      ///< see DecodeOptions
  std::vector<Function> functions = {};  ///< that may be called
  std::vector<std::string> stop = {};    ///< end the text; thoughts and calls may hold them
};

/// Takes an answer apart that comes in tokens or pieces: channels become tags, thoughts are taken
/// out, then calls, and what remains is searched for stop strings.
class AnswerText {
 public:
  struct Parts {
    std::string thoughts;  ///< before `text`
    std::string text;      ///< valid UTF-8
    std::vector<ToolCall> calls;
  };

  AnswerText(const Tokenizer& tokenizer, AnswerOptions options);

  /// What is certain.
  Parts push(Token token);
  Parts push(std::string_view piece);
  /// The rest, at the end of the answer.
  Parts finish();

  /// Whether the answer is still to come, as far as it is known.
  bool thinks() const { return thoughts_ && thoughts_->thinks(); }
  /// Whether a stop string has ended the text; nothing follows then.
  bool stopped() const { return stop_.found(); }
  /// That stop string; empty: none.
  const std::string& stop() const { return stop_.which(); }

 private:
  Parts read(std::string text, bool ends);
  /// Marks that make calls and thoughts known, of vocabularies that do not show them.
  bool shows(Token token) const;

  Tokenizer tokenizer_;
  bool split_;
  std::vector<Token> shown_;
  TokenStream stream_;
  std::optional<ChannelText> channels_;
  std::optional<ThoughtReader> thoughts_;
  std::optional<ToolCallReader> calls_;
  StopFilter stop_;
};

/// Whether a prompt ends with a tag that opens thoughts.
bool ends_within_thoughts(const Tokenizer& tokenizer, std::span<const Token> prompt);

}  // namespace ballast
