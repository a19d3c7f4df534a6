// A conversation as tokens, by the model's template.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/chat.h"
#include "ballast/engine/tokenizer.h"
#include "serve/http/fields.h"
#include "serve/requests/place.h"
#include "serve/scheduling/job.h"

namespace ballast::serve {

/// Stands where a text would: private code points, which texts do not use.
constexpr std::string_view kPlace = "\uE0B0\uE0A2\uE0B0";

/// The variables that a request sets in the chat template, as a JSON object; empty: none. Sets the
/// job's budget of thoughts. Throws ApiError, which names the field.
std::string template_variables(Fields& request, Job& job);

/// Whether the model goes on with the last message, an answer that has begun. Throws ApiError.
bool goes_on_with_last(Fields& request, const std::vector<ChatMessage>& messages);

/// What the model reads of a conversation. Members throw Error where the template refuses it.
class ChatPrompt {
 public:
  /// At least one message. `goes_on`: the model goes on with the last one.
  ChatPrompt(const Tokenizer& tokenizer, std::vector<ChatMessage> messages, ChatOptions options,
             bool goes_on);

  /// All of it.
  std::vector<Token> tokens() const { return encode(messages_, goes_on_); }
  /// What follows a context. What a system message says stands before the text if it was read with
  /// it, and before the user's message otherwise.
  std::vector<Token> after(const Context& context) const;
  /// Up to the answer to the user's first message; empty: nothing follows it.
  std::vector<Token> first_turn() const;
  /// The same with another message in its place; empty: nobody asks.
  std::vector<Token> other_first_turn() const;
  /// Tokens of `all` up to a place in a message.
  std::size_t tokens_before(const CacheMarks::Place& place, const std::vector<Token>& all) const;
  /// Whether the answer that has begun is still thinking.
  bool is_thinking() const;

 private:
  /// Up to the user's first; none: nobody asks.
  std::vector<ChatMessage> first_messages() const;
  std::vector<Token> encode(std::vector<ChatMessage> messages, bool goes_on = false) const;
  std::string text(std::vector<ChatMessage> messages, bool goes_on) const;

  const Tokenizer& tokenizer_;
  std::vector<ChatMessage> messages_;
  ChatOptions options_;
  bool goes_on_;
};

}  // namespace ballast::serve
