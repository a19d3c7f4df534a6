// The text that a model's chat template puts around what people say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/chat.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// Tokens of text that goes on where other text ended: no begin mark, and no space put before it as
/// before a text.
std::vector<Token> encode_more(const Tokenizer& tokenizer, std::string_view text,
                               bool parse_special);

/// A question stands between two texts, of which the first ends with the context if there is one.
/// Both hold special tokens of the model when `chat`.
struct QuestionForm {
  bool chat = false;
  std::string before;
  std::string after;

  /// The context and the question as they stand.
  static QuestionForm raw(std::string context) { return {false, std::move(context), ""}; }
  /// By the model's chat template (see ChatTemplate::of): context and question are one message of
  /// the user, the context first, an empty line between. `system`: a message before; empty: none.
  static QuestionForm from_template(const Tokenizer& tokenizer, std::string_view system,
                                    std::string_view context);

  /// As text that a saved context can carry; `before` is not in it.
  std::string to_text() const { return chat ? "chat:" + after : "raw"; }
  /// Throws Error if it is neither.
  static QuestionForm of_text(std::string_view text);

  /// Tokens of `before`, at the beginning of a text.
  std::vector<Token> begin(const Tokenizer& tokenizer) const;
  /// Tokens of a question and `after`, to follow begin().
  std::vector<Token> question(const Tokenizer& tokenizer, std::string_view text) const;
  /// All of it at once, for a question that has no context.
  std::vector<Token> whole(const Tokenizer& tokenizer, std::string_view text) const;
};

/// A conversation that is read turn by turn: says what text each turn adds.
class Conversation {
 public:
  Conversation(const Tokenizer& tokenizer, std::string system);

  /// The text from the end of the model's last answer (at first: from the beginning) up to where
  /// its next one begins.
  std::string say(const std::string& text);
  void answered(const std::string& text);

 private:
  ChatTemplate template_;
  ChatOptions options_;
  std::vector<ChatMessage> messages_;
};

}  // namespace ballast
