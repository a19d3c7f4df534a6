// Texts as vectors: the mean of what the model's last layer makes of their tokens.
#pragma once

#include <string>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "report/json.h"
#include "serve/requests.h"
#include "serve/scheduling/job.h"

namespace ballast::serve {

/// POST /v1/embeddings and /api/embed: input (a text, tokens, or an array of either),
/// encoding_format,
/// dimensions, truncate.
struct EmbeddingRequest {
  std::vector<Job> jobs;  ///< of each text
  bool base64 = false;    ///< vectors as the base64 of float32, little-endian
};
/// Throws ApiError, which names the field. `width`: of the model. `ollama`: nothing is a list of no
/// texts, and texts are cut to the model's positions unless `truncate` is false.
EmbeddingRequest parse_embeddings(const Json& body, const RequestLimits& limits,
                                  const Tokenizer& tokenizer, std::size_t width, bool ollama);

/// An entry of the answer's data.
Json embedding_json(const std::vector<float>& embedding, std::size_t index, bool base64);

}  // namespace ballast::serve
