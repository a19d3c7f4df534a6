// The APIs that clients speak, as translations of chat completions.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "report/json.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/http/usage.h"

namespace ballast::serve {

enum class Api : std::uint8_t {
  chat,
  completion,
  responses,
  anthropic,
  ollama_chat,
  ollama_generate
};

/// One request of an API and its answer. The request becomes the body of a chat completion, the
/// answer is made from that of the chat completion: `choices`, `finish_reason` and so on.
class Format {
 public:
  /// Throws ApiError that names a field of the body. `standard`: fields that answers repeat where
  /// the request leaves them out.
  static std::unique_ptr<Format> of(Api api, Json body, const Json& standard = Json::object());
  /// An error as clients of the path expect it.
  static Json error(const std::string& path, const ApiError& error);

  virtual ~Format() = default;

  /// For parse_chat(), or for parse_completion() if not is_chat().
  const Json& body() const { return body_; }
  bool is_chat() const { return chat_; }
  /// The whole answer to a request that asks for no text; null: it does.
  virtual Json answer_without_model(const std::string& /*model*/) const { return nullptr; }
  /// Once it is parsed: it may be large, and answers take long.
  void drop_body() { body_ = Json(); }

  /// The whole answer.
  virtual Json whole(const Json& answer, const Usage& usage) = 0;
  /// The media type of streams.
  virtual const char* stream_type() const { return "text/event-stream"; }
  // What a stream sends: for a chunk of the answer, at the end, and in place of the rest.
  virtual std::string chunk(const Json& chunk, const Usage& usage) = 0;
  virtual std::string end(const Usage& usage) = 0;
  virtual std::string fail(const ApiError& error) = 0;

 protected:
  Json body_ = Json::object();
  bool chat_ = true;
};

std::unique_ptr<Format> responses_format(const Json& body, const Json& standard);
std::unique_ptr<Format> anthropic_format(const Json& body);
std::unique_ptr<Format> ollama_format(const Json& body, bool chat);

// What the translations share.

/// A server-sent event that is named by the `type` of its data.
std::string event(const Json& data);
/// Says in `out` when a cache was made small, if one was.
void add_compactions(Json& out, const Usage& usage);
/// Copies fields that mean the same in both APIs.
void copy(Fields& from, Json& to, std::initializer_list<const char*> names);
/// Copies Ballast's own fields, and those of samplers that an API lacks.
void copy_extensions(Fields& from, Json& to);
/// The arguments of a call as an object; {} if the model did not write one.
Json arguments_of(const Json& call);
/// A part of a chat completion that shows a picture: bytes in base64, or a URL.
Json picture_part(std::string url_or_base64);
/// The text of a string or of an array of parts of these types.
std::string text_of(const Json& content, const std::string& where,
                    std::initializer_list<const char*> types);

}  // namespace ballast::serve
