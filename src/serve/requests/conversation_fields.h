// The messages of a conversation, and the functions that the model may call, or must.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ballast/engine/chat.h"
#include "ballast/engine/tokenizer.h"
#include "serve/grammar/grammar.h"
#include "serve/http/fields.h"
#include "serve/pictures.h"
#include "serve/requests/place.h"
#include "text/answer/tool_calls.h"

namespace ballast::serve {

/// "messages", at least one. Throws ApiError, which names the field.
std::vector<ChatMessage> messages_of(Fields& request, Pictures& pictures, CacheMarks& marks);

/// "tools" and "tool_choice" of a request.
class Tools {
 public:
  /// Throws ApiError, which names the field.
  Tools(Fields& request, CacheMarks& marks);

  /// That may be called.
  const std::vector<Function>& functions() const { return functions_; }
  /// As a template takes them; empty: none.
  const std::string& json() const { return json_; }
  /// Whether an answer is a call.
  bool must_call() const { return must_; }
  /// What such an answer is held to. Throws ApiError if there is no such function.
  std::shared_ptr<const Grammar> calls(const Tokenizer& tokenizer) const;
  /// Tells a model whose template has no place for functions: in the system's text, or before the
  /// user's where the template has none. Calls and results of the conversation become texts, and
  /// `options` are then without functions.
  void tell(const Tokenizer& tokenizer, std::vector<ChatMessage>& messages,
            ChatOptions& options) const;

 private:
  void choose(Fields& request);

  bool must_ = false, none_ = false;
  std::string name_;  ///< of the one that must be called; empty: any
  std::vector<Function> functions_;
  std::string json_;
};

}  // namespace ballast::serve
