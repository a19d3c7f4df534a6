// Texts that clients send to be read: contexts and documents of a library.
#pragma once

#include <string>

#include "report/json.h"
#include "serve/http/fields.h"
#include "serve/requests/limits.h"
#include "serve/scheduling/job.h"

namespace ballast::serve {

/// A request to read a context.
struct ContextRequest {
  ContextInfo info;
  Job job;
  bool stream = false;  ///< it is told how far the reading is
  std::string note;     ///< what the client should know of its file's encoding
};
/// POST /v1/contexts: text or file (base64), images (data URLs), name, system, form ("chat",
/// "raw"), cache, stream. Throws ApiError, which names the field.
ContextRequest parse_context(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer);

/// "name", of Contexts::kMostName bytes at most; empty: none.
std::string parse_name(Fields& request);

/// A document for the library.
struct DocumentRequest {
  std::string name, text;
  bool stream = false;  ///< it is told how far the reading is
  std::string note;     ///< on the file's encoding
};
/// POST /v1/library: name, text or file (base64), stream.
DocumentRequest parse_document(const Json& body);

}  // namespace ballast::serve
