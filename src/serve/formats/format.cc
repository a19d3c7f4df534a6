#include "serve/formats/format.h"

#include <algorithm>

#include "formats/json_text.h"

namespace ballast::serve {
namespace {

/// OpenAI's chat completions and completions.
class OpenAi : public Format {
 public:
  OpenAi(Json body, bool chat) {
    body_ = std::move(body);
    chat_ = chat;
    const auto options = body_.find("stream_options");
    has_usage_ = options != body_.end() && options->is_object() &&
                 options->value("include_usage", Json()) == true;
  }

  Json whole(const Json& answer, const Usage& usage) override {
    Json out = answer;
    out["usage"] = to_json(usage);
    return out;
  }
  std::string chunk(const Json& chunk, const Usage&) override {
    frame_ = chunk;
    Json out = chunk;
    if (has_usage_) out["usage"] = nullptr;
    return data(line(out));
  }
  std::string end(const Usage& usage) override {
    if (!has_usage_) return data("[DONE]");
    frame_["choices"] = Json::array();
    frame_["usage"] = to_json(usage);
    return data(line(frame_)) + data("[DONE]");
  }
  std::string fail(const ApiError& error) override {
    return data(line(error.to_json())) + data("[DONE]");
  }

 private:
  static std::string data(const std::string& text) { return "data: " + text + "\n\n"; }
  static Json to_json(const Usage& u) {
    Json out = {{"prompt_tokens", u.prompt},
                {"completion_tokens", u.made},
                {"total_tokens", u.prompt + u.made},
                {"prompt_tokens_details", {{"cached_tokens", u.cached}}},
                {"completion_tokens_details", {{"reasoning_tokens", u.thoughts}}},
                {"cached_tokens", u.cached},
                {"prompt_cache_bytes", u.prompt_cache_bytes},
                {"cache_bytes", u.cache_bytes}};
    if (u.kl >= 0) out["cache_kl"] = u.kl;
    add_compactions(out, u);
    return out;
  }

  bool has_usage_ = false;
  Json frame_;  ///< of the last chunk
};

}  // namespace

std::unique_ptr<Format> Format::of(Api api, Json body, const Json& standard) {
  switch (api) {
    case Api::responses:
      return responses_format(body, standard);
    case Api::anthropic:
      return anthropic_format(body);
    case Api::ollama_chat:
    case Api::ollama_generate:
      return ollama_format(body, api == Api::ollama_chat);
    default:
      return std::make_unique<OpenAi>(std::move(body), api == Api::chat);
  }
}

Json Format::error(const std::string& path, const ApiError& error) {
  if (path.starts_with("/v1/messages")) {
    const int status = error.status();
    const char* type = status == 401   ? "authentication_error"
                       : status == 403 ? "permission_error"
                       : status == 404 ? "not_found_error"
                       : status == 413 ? "request_too_large"
                       : status == 429 ? "rate_limit_error"
                       : status == 503 ? "overloaded_error"
                       : status >= 500 ? "api_error"
                                       : "invalid_request_error";
    return {{"type", "error"}, {"error", {{"type", type}, {"message", error.what()}}}};
  }
  if (path.starts_with("/api/")) return {{"error", error.what()}};
  return error.to_json();
}

std::string event(const Json& data) {
  return "event: " + data["type"].get<std::string>() + "\ndata: " + line(data) + "\n\n";
}

void add_compactions(Json& out, const Usage& usage) {
  for (const Compaction& one : usage.compactions) {
    out["compactions"].push_back({{"tokens", one.tokens},
                                  {"bytes_before", one.bytes_before},
                                  {"bytes", one.bytes},
                                  {"seconds", one.seconds}});
  }
}

void copy(Fields& from, Json& to, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const Json* value = from.find(name)) to[name] = *value;
  }
}

void copy_extensions(Fields& from, Json& to) {
  copy(from, to,
       {"cache", "context", "session", "cache_salt", "prompt_cache_key", "prompt_cache_retention",
        "seed", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "logit_bias", "ignore_eos", "chat_template_kwargs", "enable_thinking", "thinking_budget"});
}

Json arguments_of(const Json& call) {
  try {
    Json out = parse_json_text<Json>(call["function"]["arguments"].get_ref<const std::string&>(),
                                     "arguments");
    if (out.is_object()) return out;
  } catch (const Error&) {  // a model may write anything
  }
  return Json::object();
}

Json picture_part(std::string url_or_base64) {
  const bool url = url_or_base64.starts_with("data:") || url_or_base64.starts_with("http");
  if (!url) url_or_base64.insert(0, "data:;base64,");
  return {{"type", "image_url"}, {"image_url", {{"url", std::move(url_or_base64)}}}};
}

std::string text_of(const Json& content, const std::string& where,
                    std::initializer_list<const char*> types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    refuse(where, "{}: {} is neither a string nor an array of parts", where, shown(content));
  }
  std::string out;
  for (std::size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], fmt::format("{}[{}].", where, i));
    const std::string type = part.needed("type");
    if (std::ranges::find(types, type) == types.end()) {
      unsupported(part.full("type"), type, *types.begin());
    }
    out += part.needed(type == "refusal" ? "refusal" : "text");
  }
  return out;
}

}  // namespace ballast::serve
