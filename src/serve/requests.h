// What clients of OpenAI's API ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/engine/chat.h"
#include "ballast/engine/generate.h"
#include "ballast/engine/vision.h"
#include "report/json.h"
#include "serve/http/fields.h"
#include "serve/library.h"
#include "serve/scheduling/scheduler.h"
#include "serve/texts/contexts.h"
#include "serve/texts/sessions.h"

namespace ballast::serve {

/// What a request may take, and what it means where it does not say.
struct RequestLimits {
  std::string model;                    ///< its name
  std::size_t choices = 16;             ///< n at most
  std::size_t max_tokens = 2048;        ///< of an answer, unless the request says
  CacheOptions cache;                   ///< unless the request says
  std::string sized_method = "replay";  ///< of a cache with bytes and no method
  std::size_t token_bytes = 1;          ///< of a token in the exact cache
  std::size_t positions = 1 << 20;      ///< of the model
  bool endless = false;                 ///< its streams may go on beyond them
  const VisionModel* vision = nullptr;  ///< null: pictures are refused
  ServedLibrary* library = nullptr;     ///< that "library" is; null: none
  const Sessions* sessions = nullptr;   ///< that requests name; null: none
  const Guard* guard = nullptr;         ///< that chooses sizes; null: none
  /// Of requests that do not say: where the model's files say nothing, temperature 0.7.
  SamplingOptions sampling = {.temperature = 0.7f};
};

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

/// At least one context, one behind the other. Throws Error where they do not fit together.
std::shared_ptr<const Context> joined_context(
    std::span<const std::shared_ptr<const Context>> contexts, bool chat,
    const Tokenizer& tokenizer);

/// A text, tokens, or an array of at most `most` of either. `name`: of the field.
std::vector<std::vector<Token>> prompts_of(const Json& prompt, const std::string& name,
                                           std::size_t most, const Tokenizer& tokenizer,
                                           bool has_context = false);

/// A request to read a context.
struct ContextRequest {
  ContextInfo info;
  Job job;
  bool stream = false;  ///< it is told how far the reading is
  std::string note;     ///< what the client should know of its file's encoding
};
/// POST /v1/contexts: text or file (base64), images (data URLs), name, system, form ("chat",
/// "raw"), cache, stream.
ContextRequest parse_context(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer);

/// A document for the library.
struct DocumentRequest {
  std::string name, text;
  bool stream = false;  ///< it is told how far the reading is
  std::string note;     ///< on the file's encoding
};
/// POST /v1/library: name, text or file (base64), stream.
DocumentRequest parse_document(const Json& body);

/// The job's cache: {"bytes": 0.125, "method": "replay", …}; null: that of the limits.
void parse_cache(const Json* value, const RequestLimits& limits, Job& job);
/// The policy of a method string and an amount of memory, either of which may be empty. Throws
/// Error as Policy does.
Policy policy_of(const std::string& method, const std::string& bytes);

}  // namespace ballast::serve
