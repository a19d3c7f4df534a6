// The text that a chat template puts around messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/chat.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// Tokens of text that continues other text: no begin token and no leading space.
std::vector<Token> encode_more(const Tokenizer& tokenizer, std::string_view text,
                               bool parse_special);

/// The texts before and after a question. `before` ends with the context if there is one. Both may
/// hold special tokens if `chat`.
struct QuestionForm {
  bool chat = false;
  std::string before;
  std::string after;

  /// Context and question without a template.
  static QuestionForm raw(std::string context) { return {false, std::move(context), ""}; }
  /// By the model's chat template (see ChatTemplate::of): context and question are one message of
  /// the user, the context first, an empty line between. `system`: a message before; empty: none.
  static QuestionForm from_template(const Tokenizer& tokenizer, std::string_view system,
                                    std::string_view context);

  /// The form as text for a saved context, without `before`.
  std::string to_text() const { return chat ? "chat:" + after : "raw"; }
  /// Throws Error on any other text.
  static QuestionForm of_text(std::string_view text);

  /// Tokens of `before`, at the beginning of a text.
  std::vector<Token> begin(const Tokenizer& tokenizer) const;
  /// Tokens of a question and `after`, to follow begin().
  std::vector<Token> question(const Tokenizer& tokenizer, std::string_view text) const;
  /// All of it at once, for a question that has no context.
  std::vector<Token> whole(const Tokenizer& tokenizer, std::string_view text) const;
};

/// Bytes of QuestionForm::before that the chat template puts before a context.
std::size_t bytes_before_context(const Tokenizer& tokenizer, std::string_view system);

/// Tokens that stand before a context: those of the chat template if `chat`; at least 4, on which
/// attention rests where it has nothing to look at.
std::size_t tokens_before_context(const Tokenizer& tokenizer, bool chat,
                                  std::string_view system = {});

/// Tokens that the chat template puts around a context and a question. A model without one has 0,
/// but for the token that begins a text.
std::size_t template_tokens(const Tokenizer& tokenizer);

/// The text that each turn adds to a conversation.
class Conversation {
 public:
  /// `tools`: as in ChatOptions.
  Conversation(const Tokenizer& tokenizer, std::string system, std::string tools = {});

  /// The text from the end of the model's last answer, or from the beginning, to the start of its
  /// next one.
  std::string say(const std::string& text);
  void answered(const std::string& text);
  /// What would stand around the next message: `before` is the text from the end of the last
  /// answer.
  QuestionForm next() const;

 private:
  ChatTemplate template_;
  ChatOptions options_;
  std::vector<ChatMessage> messages_;
};

}  // namespace ballast
