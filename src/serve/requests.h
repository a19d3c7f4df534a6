// What clients of OpenAI's API ask for.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "report/json.h"
#include "serve/library.h"
#include "serve/requests/limits.h"
#include "serve/scheduling/job.h"
#include "serve/texts/contexts.h"

namespace ballast::serve {

/// A request for text.
struct TextRequest {
  bool chat = false;
  bool stream = false;
  bool logprobs = false;
  bool echo = false;          ///< answers begin with the prompt
  bool several_calls = true;  ///< in one answer
  /// A library is asked: of the sections that may answer, each is tried alone; see
  /// choose_section().
  bool asks_library = false;
  bool cites = false;    ///< answers name the sentences that they rest on
  std::string question;  ///< that it is asked
  std::vector<Candidate> candidates;
  std::vector<FoundSection> sections;  ///< that the job's context is of
  Job job;
  std::vector<std::vector<Token>> prompts;  ///< where there are several; job.prompt is the first

  std::size_t prompt_count() const { return prompts.empty() ? 1 : prompts.size(); }
  const std::vector<Token>& prompt(std::size_t i) const {
    return prompts.empty() ? job.prompt : prompts[i];
  }
  /// The job of a prompt.
  Job job_of(std::size_t i) const;
};

/// /v1/chat/completions. Throws ApiError, which names the field.
TextRequest parse_chat(const Json& body, const RequestLimits& limits, const Tokenizer& tokenizer,
                       Contexts& contexts, const std::string& owner = "");
/// /v1/completions.
TextRequest parse_completion(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer, Contexts& contexts,
                             const std::string& owner = "");

/// A text, tokens, or an array of at most `most` of either. `name`: of the field.
std::vector<std::vector<Token>> prompts_of(const Json& prompt, const std::string& name,
                                           std::size_t most, const Tokenizer& tokenizer,
                                           bool has_context = false);

}  // namespace ballast::serve
