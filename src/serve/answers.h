// Answers in OpenAI's shape, whole and in pieces.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "report/json.h"
#include "serve/formats/format.h"
#include "serve/requests.h"
#include "serve/scheduling/scheduler.h"

namespace ballast::serve {

/// Collects what a job says, and writes it as JSON without usage, which a Format adds.
class AnswerWriter {
 public:
  AnswerWriter(TextRequest request, std::string model, const Tokenizer& tokenizer);

  // What the job of a prompt says. In a stream each returns the chunks that say it, perhaps none.
  std::vector<Json> add(const PromptRead& read, std::size_t prompt = 0);
  std::vector<Json> add(const Piece& piece, std::size_t prompt = 0);
  void add(const Ended& ended);
  /// The library that was asked has no answer.
  std::vector<Json> add_not_found();

  /// The whole answer.
  Json whole() const;
  const Usage& usage() const { return usage_; }

 private:
  struct Choice {
    explicit Choice(TokenStream stream) : stream(std::move(stream)) {}
    std::string text;
    std::string thoughts;
    Finish finish = Finish::end;
    std::string stop;        ///< the stop string that ended it
    TokenStream stream;      ///< of the tokens so far
    std::size_t offset = 0;  ///< characters of their text
    Json logprobs = nullptr;
    bool unsure = false;
    Json citations = nullptr;  ///< where the request asks for them
    Json calls = Json::array();
  };
  static const char* reason(const Choice& choice);
  Json frame(Json choices, bool chunk) const;
  /// The log-probabilities of tokens that follow those of the choice so far; `unknown`: the first
  /// has none.
  Json logprobs(const std::vector<GeneratedToken>& tokens, Choice& choice,
                bool unknown = false) const;
  Json chat_logprobs(const std::vector<GeneratedToken>& tokens) const;
  std::string token_text(Token token) const;
  Json citations(const Piece& piece) const;
  /// The same of an answer from a library.
  Json citations_of_library(const Piece& piece) const;

  TextRequest request_;
  std::string model_;
  std::string id_;
  std::int64_t created_;
  const Tokenizer& tokenizer_;
  std::vector<Choice> choices_;  ///< those of the first prompt, then those of the second, ...
  Usage usage_;                  ///< of all prompts together
};

}  // namespace ballast::serve
