// Where a request's text stands: behind contexts, in a session, in a library, or alone in a cache.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "serve/http/fields.h"
#include "serve/requests.h"

namespace ballast::serve {

/// The job's cache: {"bytes": 0.125, "method": "replay", …}; null: that of the limits. Throws
/// ApiError, which names the field.
void parse_cache(const Json* value, const RequestLimits& limits, Job& job);

/// The first tokens of a job's text, as many as it shares with `other`, are never dropped.
void protect_head(Job& job, const std::vector<Token>& other, const RequestLimits& limits);

/// What a library is asked: the last question, and all of a conversation's.
struct Asked {
  std::string last, all;
};

/// context, cache, session, cite. Throws ApiError, which names the field.
void parse_place(Fields& request, const RequestLimits& limits, const Tokenizer& tokenizer,
                 Contexts& contexts, const std::string& owner, const Asked& asked,
                 TextRequest& out);

/// At least one context, one behind the other. Throws Error where they do not fit together.
std::shared_ptr<const Context> joined_context(
    std::span<const std::shared_ptr<const Context>> contexts, bool chat,
    const Tokenizer& tokenizer);

}  // namespace ballast::serve
