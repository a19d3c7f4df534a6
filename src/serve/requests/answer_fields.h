// How answers are drawn, where they end, and what they are held to.
#pragma once

#include "ballast/engine/tokenizer.h"
#include "serve/http/fields.h"
#include "serve/requests/limits.h"
#include "serve/scheduling/job.h"

namespace ballast::serve {

// Each reads fields of a request into its job, and throws ApiError, which names the field.

/// temperature, top_p, top_k, min_p, penalties, logit_bias, seed.
void parse_sampling(Fields& request, const RequestLimits& limits, const Tokenizer& tokenizer,
                    SamplingOptions& out);
/// max_tokens (at least `least`), max_completion_tokens, ignore_eos, stop.
void parse_length(Fields& request, const RequestLimits& limits, std::uint64_t least,
                  GenerateOptions& out);
/// response_format, grammar, regex.
void parse_form(Fields& request, Job& job);

}  // namespace ballast::serve
