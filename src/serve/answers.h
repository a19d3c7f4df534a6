// Answers in OpenAI's shape, whole and in pieces.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "report/json.h"
#include "serve/requests.h"
#include "serve/scheduler.h"
#include "serve/tool_calls.h"

namespace ballast::serve {

/// Collects what a job says, and writes it as JSON.
class AnswerWriter {
 public:
  AnswerWriter(const TextRequest& request, std::string model, const Tokenizer& tokenizer);

  void add(const PromptRead& read) { read_ = read; }
  /// Returns the chunk of a stream that says it; null where there is nothing to say.
  Json add(const Piece& piece);
  void add(const Ended& ended) { ended_ = ended; }

  /// The whole answer.
  Json whole() const;
  /// A chunk of a stream: before the first pieces of a chat; with the usage alone.
  Json opening(std::size_t choice) const;
  Json usage_chunk() const;

 private:
  struct Choice {
    std::string text;
    std::vector<GeneratedToken> tokens;
    Finish finish = Finish::end;
    std::size_t offset = 0;                ///< characters of the tokens before
    std::optional<ToolCallReader> reader;  ///< where the model was given functions
    Json calls = Json::array();
  };
  static const char* reason(const Choice& choice);
  /// Takes calls out of a piece's text, and adds them; returns what is left of the text.
  std::string take_calls(Choice& choice, const Piece& piece) const;
  Json frame(Json choices, bool chunk) const;
  Json usage() const;
  Json logprobs(const std::vector<GeneratedToken>& tokens, std::size_t& offset) const;
  std::string token_text(Token token) const;

  bool chat_;
  bool stream_;
  bool logprobs_;
  bool include_usage_;
  bool several_calls_;
  std::string model_;
  std::string id_;
  std::int64_t created_;
  const Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
  PromptRead read_;
  Ended ended_;
};

}  // namespace ballast::serve
