// Messages in channels, as gpt-oss writes them (its format is called harmony).
#pragma once

#include <string>
#include <string_view>

#include "ballast/engine/tokenizer.h"

namespace ballast {

/// Whether the model answers in channels: <|channel|> and <|message|> are marks of its vocabulary.
bool writes_channels(const Tokenizer& tokenizer);

/// What closes thoughts and opens the answer, where only thoughts have been written; and what opens
/// the answer behind a prompt.
inline constexpr std::string_view kToFinalChannel =
    "<|end|><|start|>assistant<|channel|>final<|message|>";
inline constexpr std::string_view kFinalChannel = "<|channel|>final<|message|>";

/// Writes such an answer, whose marks are shown and which comes in pieces, as other models do:
/// `analysis` before an answer between <think> and </think>, `final` and `commentary` bare, a
/// message to functions.NAME as <tool_call>{"name": NAME, "arguments": ...}</tool_call>. Thoughts
/// after the answer has begun are left out. Text without channels stays as it is.
class ChannelText {
 public:
  /// What is certain.
  std::string push(std::string_view piece);
  /// The rest, at the end of the answer.
  std::string finish();

 private:
  enum class Place { start, header, thoughts, answer, call, dropped };
  std::string read(bool ends);
  /// Begins a message; returns the text to write before it.
  std::string open(std::string_view header);
  /// Ends it; returns the text to write after it.
  std::string close();

  Place place_ = Place::start;
  std::string held_;
  bool thinks_ = false;  ///< <think> stands open
  bool said_ = false;    ///< the answer has begun
  bool empty_ = true;    ///< the message has no text so far
};

}  // namespace ballast
