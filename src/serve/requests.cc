#include "serve/requests.h"

#include <ctime>
#include <limits>
#include <random>

#include "base/fail.h"
#include "formats/json_text.h"
#include "serve/api_error.h"
#include "serve/json_schema.h"
#include "text/question_form.h"

namespace ballast::serve {
namespace {

constexpr std::uint64_t kMostTokens = 1 << 30;
constexpr std::size_t kMostStops = 16;
/// Bytes of the arguments of all calls in a conversation: they take forty times as much as JSON.
constexpr std::size_t kMostArguments = std::size_t{1} << 20;

/// Runs what throws Error about the field `param`.
template <typename Action>
auto naming(const std::string& param, Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    const bool limit = error.code() == ErrorCode::over_limit;
    throw ApiError(400, limit ? "context_length_exceeded" : "invalid_value",
                   fmt::format("{}: {}", param, error.what()), param);
  }
}

/// A share as a number, or an amount as text.
std::string bytes_of(const Json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number > 0 && number < 1) return fmt::format("{}", number);
  if (number == 1) return "100%";
  if (value.is_number_unsigned() && number > 1)
    return fmt::format("{}B", value.get<std::uint64_t>());
  refuse(name,
         "{}: {} is neither a share above 0 and up to 1, nor bytes, nor a text such as \"1/8\"",
         name, shown(value));
}

/// The texts of a message's content; only one that calls functions may have none.
std::string content_of(Fields& message, const std::string& where, bool calls) {
  const Json* content = message.find("content");
  if (content == nullptr && calls) return "";
  if (content == nullptr) refuse(where + "content", "{}content is missing", where);
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    refuse(where + "content", "{}content: {} is neither a string nor an array of parts", where,
           shown(*content));
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], fmt::format("{}content[{}].", where, i));
    const std::string type = part.text("type").value_or("");
    if (type != "text") {
      throw ApiError(400, "unsupported_parameter",
                     fmt::format("{}: only parts of type \"text\" are supported, this is {}",
                                 part.full("type"), shown(Json(type))),
                     part.full("type"));
    }
    const auto words = part.text("text");
    if (!words) refuse(part.full("text"), "{} is missing", part.full("text"));
    text += *words;
    part.end();
  }
  return text;
}

/// tool_calls of a message for the template. Clients write arguments as text, templates want them
/// as they are. `room`: bytes of arguments that may still come.
Json calls_of(const Json& calls, const std::string& where, std::size_t& room) {
  if (!calls.is_array()) refuse(where, "{}: {} is not an array of calls", where, shown(calls));
  Json out = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Json call = calls[i];
    const std::string place = fmt::format("{}[{}].", where, i);
    Fields f(call, place);
    const Json* function = f.find("function");
    if (f.text("type").value_or("function") != "function" || function == nullptr) {
      refuse(place + "function", "{}function: only calls of functions are supported", place);
    }
    Fields about(*function, place + "function.");
    if (!about.text("name")) refuse(place + "function.name", "{}function.name is missing", place);
    if (const auto text = about.text("arguments")) {
      if (text->size() > room) {
        refuse(about.full("arguments"),
               "{}: the arguments of all calls take more than {} bytes; leave out early messages",
               about.full("arguments"), kMostArguments);
      }
      room -= text->size();
      try {
        call["function"]["arguments"] = parse_json_text<Json>(*text, place);
      } catch (const Error&) {  // a model may have written anything
      }
    }
    out.push_back(std::move(call));
  }
  return out;
}

/// The functions that the model may call, as the template takes them, and their names; empty: none.
std::string tools_of(Fields& f, std::vector<std::string>& names) {
  const Json* tools = f.find("tools");
  const std::string choice = [&]() -> std::string {
    const Json* value = f.find("tool_choice");
    if (value == nullptr) return "auto";
    if (*value == "auto" || *value == "none") return *value;
    throw ApiError(
        400, "unsupported_parameter",
        fmt::format("tool_choice: {} is not supported; known: \"auto\", \"none\"", shown(*value)),
        "tool_choice");
  }();
  if (tools == nullptr) return "";
  if (!tools->is_array()) refuse("tools", "tools: {} is not an array", shown(*tools));
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}].", i));
    const Json* function = tool.find("function");
    if (tool.text("type").value_or("") != "function" || function == nullptr) {
      refuse(tool.full("type"), "{}: only tools of type \"function\" are supported",
             tool.full("type"));
    }
    Fields about(*function, tool.full("function."));
    const auto name = about.text("name");
    if (!name) refuse(about.full("name"), "{} is missing", about.full("name"));
    if (choice != "none") names.push_back(*name);
  }
  return names.empty() ? "" : tools->dump();
}

std::vector<ChatMessage> messages_of(Fields& fields) {
  const Json* list = fields.find("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    refuse("messages", "messages: an array of at least one message is needed");
  }
  std::vector<ChatMessage> out;
  std::size_t room = kMostArguments;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("messages[{}].", i);
    Fields message((*list)[i], where);
    std::string role = message.text("role").value_or("");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
      refuse(where + "role",
             "{}role: {} is none of \"system\", \"developer\", \"user\", \"assistant\", \"tool\"",
             where, shown(Json(role)));
    }
    Json more = Json::object();
    const Json* calls = role == "assistant" ? message.find("tool_calls") : nullptr;
    if (calls != nullptr && !calls->empty()) {
      more["tool_calls"] = calls_of(*calls, where + "tool_calls", room);
    }
    if (role == "tool") {
      for (const char* name : {"tool_call_id", "name"}) {
        if (const auto text = message.text(name)) more[name] = *text;
      }
    }
    out.push_back({role, content_of(message, where, more.contains("tool_calls")),
                   more.empty() ? "" : more.dump()});
    if (role != "assistant") message.only("tool_calls", Json::array());
    message.only("function_call", nullptr);
    message.only("audio", nullptr);
    message.ignore({"refusal", "annotations"});
    message.end();
  }
  return out;
}

/// response_format; nullptr: any text.
std::shared_ptr<const JsonGrammar> parse_format(const Json& format) {
  Fields f(format, "response_format.");
  const std::string type = f.text("type").value_or("");
  const Json* about = type == "json_schema" ? f.find("json_schema") : nullptr;
  f.end();
  if (type == "text") return nullptr;
  if (type == "json_object") return std::make_shared<JsonGrammar>();
  if (type != "json_schema") {
    throw ApiError(400, "unsupported_parameter",
                   fmt::format("response_format.type: {} is not supported; known: \"text\", "
                               "\"json_object\", \"json_schema\"",
                               shown(Json(type))),
                   "response_format.type");
  }
  const std::string where = "response_format.json_schema";
  if (about == nullptr) refuse(where, "{} is missing", where);
  Fields a(*about, where + ".");
  a.text("name");
  a.text("description");
  a.flag("strict", false);  // answers are held to the schema in any case
  const Json* schema = a.find("schema");
  a.end();
  if (schema == nullptr) refuse(where + ".schema", "{}.schema is missing", where);
  return compile_schema(*schema, where + ".schema");
}

/// What both kinds of request have in common.
void parse_common(Fields& f, const RequestLimits& limits, TextRequest& out) {
  const std::string model = f.text("model").value_or(limits.model);
  if (model != limits.model) {
    throw ApiError(404, "model_not_found",
                   fmt::format("the model {} is not here; this server runs {}", shown(Json(model)),
                               shown(Json(limits.model))),
                   "model");
  }
  GenerateOptions& g = out.job.generate;
  SamplingOptions& s = g.sampling;
  s.temperature = static_cast<float>(f.number("temperature", 0, 2, 1));
  s.top_p = static_cast<float>(f.number("top_p", 0, 1, 1));
  if (s.top_p == 0) refuse("top_p", "top_p: must be above 0");
  s.min_p = static_cast<float>(f.number("min_p", 0, 1, 0));
  if (s.min_p == 1) refuse("min_p", "min_p: must be below 1");
  s.top_k = f.count("top_k", 0, kMostTokens).value_or(0);
  s.repetition_penalty = static_cast<float>(f.number("repetition_penalty", 1, 100, 1));
  const auto seed = f.count("seed", 0, std::numeric_limits<std::uint64_t>::max());
  s.seed = seed ? *seed : std::random_device()();
  const auto most = f.count("max_tokens", 1, kMostTokens);
  const auto most_made = f.count("max_completion_tokens", 1, kMostTokens);
  if (most && most_made && *most != *most_made) {
    refuse("max_tokens", "max_tokens and max_completion_tokens are both given and differ");
  }
  g.max_tokens = most_made.value_or(most.value_or(limits.max_tokens));
  g.ignore_end = f.flag("ignore_eos", false);
  if (const Json* stop = f.find("stop")) {
    const Json all = stop->is_string() ? Json::array({*stop}) : *stop;
    if (!all.is_array() || all.size() > kMostStops) {
      refuse("stop", "stop: {} is neither a string nor an array of at most {} strings",
             shown(*stop), kMostStops);
    }
    for (const Json& one : all) {
      if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
        refuse("stop", "stop: {} is not a string of at least one character", shown(one));
      }
      g.stop.push_back(one.get<std::string>());
    }
  }
  out.job.choices = f.count("n", 1, limits.choices).value_or(1);
  out.stream = f.flag("stream", false);
  if (const Json* options = f.find("stream_options")) {
    if (!out.stream) refuse("stream_options", "stream_options: only with \"stream\": true");
    Fields o(*options, "stream_options.");
    out.include_usage = o.flag("include_usage", false);
    o.only("include_obfuscation", false);
    o.end();
  }
  if (const Json* format = f.find("response_format")) {
    out.job.json = parse_format(*format);
  }
  f.only("frequency_penalty", 0);
  f.only("presence_penalty", 0);
  f.only("logit_bias", Json::object());
  f.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
}

void parse_place(Fields& f, const RequestLimits& limits, Contexts& contexts, TextRequest& out) {
  const auto id = f.text("context");
  const Json* cache = f.find("cache");
  if (!id) {
    out.job.cache = parse_cache(cache, limits.cache);
    return;
  }
  if (cache != nullptr) {
    refuse("cache", "cache: the context {} has its own; leave it out", to_utf8(*id));
  }
  try {
    out.job.context = contexts.get(*id);
  } catch (const Error& error) {
    throw ApiError(500, "bad_context", error.what(), "context");
  }
  if (!out.job.context) {
    throw ApiError(
        404, "context_not_found",
        fmt::format("context: there is no {}; POST /v1/contexts makes one", shown(Json(*id))),
        "context");
  }
  const bool chat = out.job.context->info.form.starts_with("chat");
  if (chat != out.chat) {
    refuse("context", "context: {} is of the form \"{}\": use {}", *id, chat ? "chat" : "raw",
           chat ? "/v1/chat/completions" : "/v1/completions");
  }
}

/// Tokens of a conversation whose first message goes on after a context.
std::vector<Token> after_context(const Tokenizer& tokenizer, std::vector<ChatMessage> messages) {
  // The placeholder of the text that was read, a private code point that texts do not use.
  constexpr std::string_view place = "\uE0B0\uE0A2\uE0B0";
  if (messages[0].role != "user") {
    refuse("messages[0].role",
           "messages[0].role: the first message after a context must be of the user; the system's "
           "belongs into POST /v1/contexts");
  }
  messages[0].content.insert(0, place);
  const std::string text =
      ChatTemplate::of(tokenizer).format(messages, chat_options(tokenizer, true));
  const std::size_t at = text.find(place);
  require(at != std::string::npos, "the model's chat template leaves out the first message");
  return encode_more(tokenizer, text.substr(at + place.size()), true);
}

}  // namespace

Policy policy_of(const std::string& method, const std::string& bytes) {
  const Policy policy = Policy::parse(!method.empty() ? method
                                      : bytes.empty() ? "exact"
                                                      : "replay");
  if (bytes.empty()) return policy;
  require(!policy.has_memory(), "bytes and method {} both say how much to keep", method);
  return policy.with("bytes", bytes);
}

CacheOptions parse_cache(const Json* value, const CacheOptions& standard) {
  if (value == nullptr) return standard;
  Fields f(*value, "cache.");
  CacheOptions out = standard;
  const Json* bytes = f.find("bytes");
  const auto method = f.text("method");
  const auto protocol = f.text("protocol"), positions = f.text("positions");
  const auto type = f.text("type"), key_type = f.text("key_type"),
             value_type = f.text("value_type");
  f.end();
  if (method) naming("cache.method", [&] { return Policy::parse(*method); });
  naming("cache", [&] {
    if (bytes != nullptr || method) {
      out.policy =
          policy_of(method.value_or(""), bytes != nullptr ? bytes_of(*bytes, "cache.bytes") : "");
    }
    if (protocol) out.protocol = parse_protocol(*protocol);
    if (positions) out.positions = parse_positions(*positions);
    if (type) out.key_type = out.value_type = parse_storage_type(*type);
    if (key_type) out.key_type = parse_storage_type(*key_type);
    if (value_type) out.value_type = parse_storage_type(*value_type);
  });
  return out;
}

TextRequest parse_chat(const Json& body, const RequestLimits& limits, const Tokenizer& tokenizer,
                       Contexts& contexts) {
  TextRequest out;
  out.chat = out.job.chat = true;
  Fields f(body);
  parse_common(f, limits, out);
  std::vector<ChatMessage> messages = messages_of(f);
  out.logprobs = f.flag("logprobs", false);
  if (const auto top = f.count("top_logprobs", 0, 20)) {
    if (!out.logprobs) refuse("top_logprobs", "top_logprobs: only with \"logprobs\": true");
    out.job.generate.alternatives = *top;
  }
  const std::string tools = tools_of(f, out.functions);
  out.several_calls = f.flag("parallel_tool_calls", true);
  f.only("functions", Json::array());
  f.only("modalities", Json::array({"text"}));
  f.only("reasoning_effort", "none");
  parse_place(f, limits, contexts, out);
  f.end();
  Job& job = out.job;
  const auto encode = [&](std::span<const ChatMessage> all) {
    try {
      return encode_chat(tokenizer, all, true, tools);
    } catch (const Error& error) {
      if (tools.empty() || error.code() != ErrorCode::unsupported) throw;
      throw ApiError(400, "unsupported_parameter", fmt::format("tools: {}", error.what()), "tools");
    }
  };
  naming("messages", [&] {
    if (job.context) {
      if (!tools.empty()) {
        throw ApiError(400, "unsupported_parameter",
                       "tools: they stand before the text of a context, which "
                       "is read already",
                       "tools");
      }
      job.prompt = after_context(tokenizer, std::move(messages));
      return;
    }
    job.prompt = encode(messages);
    job.compress_at = job.prompt.size();
    // The first turn is what the method summarizes, so that later turns find it summarized.
    std::size_t first = 0;
    while (first < messages.size() && messages[first].role != "user") ++first;
    if (first + 1 < messages.size() && job.cache.protocol == Protocol::prefill &&
        job.cache.policy.info().window_policy != WindowPolicy::all) {
      const std::vector<Token> turn = encode(std::span(messages).first(first + 1));
      if (turn.size() < job.prompt.size() &&
          std::equal(turn.begin(), turn.end(), job.prompt.begin())) {
        job.compress_at = turn.size();
      }
    }
  });
  if (job.prompt.empty()) refuse("messages", "messages: the prompt is empty");
  return out;
}

TextRequest parse_completion(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer, Contexts& contexts) {
  TextRequest out;
  Fields f(body);
  parse_common(f, limits, out);
  if (const auto top = f.count("logprobs", 0, 20)) {
    out.logprobs = true;
    out.job.generate.alternatives = *top;
  }
  f.only("echo", false);
  f.only("suffix", "");
  f.only("best_of", out.job.choices);
  parse_place(f, limits, contexts, out);
  const Json* prompt = f.find("prompt");
  if (prompt == nullptr) refuse("prompt", "prompt is missing");
  f.end();
  Job& job = out.job;
  // An answer begins a text for a client, but goes on after the prompt, its leading space included.
  job.generate.text_start = false;
  if (prompt->is_array() && prompt->size() == 1 && (*prompt)[0].is_string()) prompt = &(*prompt)[0];
  if (prompt->is_string()) {
    const std::string& text = prompt->get_ref<const std::string&>();
    naming("prompt", [&] {
      const QuestionForm form = QuestionForm::raw("");
      job.prompt = job.context ? form.question(tokenizer, text) : form.whole(tokenizer, text);
    });
  } else if (prompt->is_array()) {
    for (const Json& token : *prompt) {
      if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= tokenizer.size()) {
        refuse("prompt",
               "prompt: {} is not a token from 0 to {}; one prompt a request is supported",
               shown(token), tokenizer.size() - 1);
      }
      job.prompt.push_back(token.get<Token>());
    }
  } else {
    refuse("prompt", "prompt: {} is neither a string nor an array of tokens", shown(*prompt));
  }
  if (job.prompt.empty()) refuse("prompt", "prompt: the prompt is empty");
  job.compress_at = job.prompt.size();
  return out;
}

ContextRequest parse_context(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer) {
  ContextRequest out;
  Fields f(body);
  const auto text = f.text("text");
  if (!text || text->empty()) refuse("text", "text: the text to be read is missing");
  const std::string form = f.text("form").value_or("chat");
  if (form != "chat" && form != "raw") {
    refuse("form", "form: {} is neither \"chat\" nor \"raw\"", shown(Json(form)));
  }
  out.info.name = f.text("name").value_or("");
  out.info.system = f.text("system").value_or("");
  if (form == "raw" && !out.info.system.empty()) {
    refuse("system", "system: only with \"form\": \"chat\"");
  }
  out.job.cache = parse_cache(f.find("cache"), limits.cache);
  f.end();
  naming("text", [&] {
    const QuestionForm words = form == "raw"
                                   ? QuestionForm::raw(*text)
                                   : QuestionForm::from_template(tokenizer, out.info.system, *text);
    out.info.form = words.to_text();
    out.info.before = words.before;
    out.job.prompt = words.begin(tokenizer);
  });
  out.info.created = std::time(nullptr);
  out.info.tokens = out.job.prompt.size();
  out.job.compress_at = out.job.prompt.size();
  out.job.chat = form == "chat";
  out.job.choices = 0;
  return out;
}

}  // namespace ballast::serve
