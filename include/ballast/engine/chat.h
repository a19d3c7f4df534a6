// Conversations as the text that a model was trained on.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace ballast {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"; some templates know more
  std::string content;
  /// A JSON object of further fields that the template may ask for, such as tool_calls or
  /// tool_call_id; it may also replace the content, not the role. Empty: none.
  std::string more = {};
};

struct ChatOptions {
  bool add_generation_prompt = true;  ///< end with what comes before the model's answer
  std::string bos_token;              ///< the texts of these tokens
  std::string eos_token;
  /// The functions that the model may call: a JSON array as in OpenAI's API. Empty: none.
  std::string tools = {};
  /// A JSON object of further variables of the template, such as enable_thinking. Empty: none.
  std::string variables = {};
};

/// A chat template: Jinja text, as models carry it. What it writes holds the model's special
/// tokens, the first (bos) included, so encode it with add_special off and parse_special on.
///
/// Supported is what such templates use: if, for (with loop variables, filters, else, break,
/// continue), set (blocks and namespaces too), macro, raw, comments and whitespace control;
/// expressions with Python's operators, slices, the usual filters and tests, methods of strings
/// and dicts; raise_exception, namespace, range, dict, strftime_now. A template that does too much
/// is stopped: time and memory are bounded by the size of the conversation.
class ChatTemplate {
 public:
  /// Throws Error that names the line and what is not supported.
  explicit ChatTemplate(std::string_view jinja);

  /// Our own template of a family: one of chat_families(). Throws Error that lists them.
  static ChatTemplate family(std::string_view name);

  /// The model's own template; if it has none, the family that its special tokens show, else
  /// "plain". `tools`: the one for conversations with functions, where the model has two.
  static ChatTemplate of(const Tokenizer& tokenizer, bool tools = false);

  /// Throws Error if the template refuses the conversation (a system message where the model knows
  /// none, say) or fails, if it leaves out the tools that are given, and on JSON that is none.
  std::string format(std::span<const ChatMessage> messages, const ChatOptions& options) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Names for ChatTemplate::family().
std::vector<std::string> chat_families();

/// The texts of the tokenizer's bos and eos tokens, empty where there is none.
ChatOptions chat_options(const Tokenizer& tokenizer, bool add_generation_prompt = true);

/// The tokens of a conversation for this model, by its own template.
std::vector<Token> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                               bool add_generation_prompt = true, std::string tools = {});
/// The same with options of chat_options().
std::vector<Token> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                               const ChatOptions& options);

}  // namespace ballast
