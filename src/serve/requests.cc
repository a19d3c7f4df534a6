#include "serve/requests.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <random>

#include "ballast/engine/question_form.h"
#include "ballast/joined.h"
#include "base/base64.h"
#include "base/fail.h"
#include "documents/document.h"
#include "documents/passages.h"
#include "formats/json_text.h"
#include "formats/utf8_text.h"
#include "methods/replay.h"
#include "serve/grammar/expression_rules.h"
#include "serve/grammar/gbnf.h"
#include "serve/grammar/json_schema.h"
#include "serve/http/api_error.h"
#include "serve/pictures.h"
#include "serve/texts/retention.h"
#include "text/answer/answer_text.h"

namespace ballast::serve {
namespace {

constexpr std::uint64_t kMostTokens = 1 << 30;
constexpr std::size_t kMostStops = 16, kMostPrompts = 128, kMostBiases = 1024;
/// Bytes of the arguments of all calls in a conversation: they take forty times as much as JSON.
constexpr std::size_t kMostArguments = std::size_t{1} << 20;

/// Placeholders of private code points, which texts do not use: of a text that was read, and of the
/// end of an answer that is gone on with.
constexpr std::string_view kPlace = "\uE0B0\uE0A2\uE0B0", kEnd = "\uE0B0\uE0A3\uE0B0";

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

/// The texts of a message's content; only one that calls functions, or that says null, has none.
std::string content_of(Fields& message, const std::string& where, bool may_be_missing,
                       Pictures& pictures, CacheMarks& marks, std::size_t number) {
  const Json* content = message.find("content");
  if (content == nullptr && may_be_missing) return "";
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
    // Those of the API of responses are the same.
    const bool is_text = type == "text" || type == "input_text" || type == "output_text";
    if (type == "image_url" || type == "input_image") {
      const Json* image = part.find("image_url");
      const Json* url = image != nullptr && image->is_object() && image->contains("url")
                            ? &(*image)["url"]
                            : image;
      if (url == nullptr || !url->is_string()) {
        refuse(part.full("image_url"), "{}: a data URL is missing", part.full("image_url"));
      }
      text += pictures.read(url->get<std::string>(), part.full("image_url"));
      marks.read(part, number, text.size());
      part.ignore({"detail", "file_id"});
      part.end();
      continue;
    }
    if (!is_text && type != "refusal") {
      throw ApiError(
          400, "unsupported_parameter",
          fmt::format("{}: only parts of type \"text\" and \"image_url\" are supported, this is {}",
                      part.full("type"), shown(Json(type))),
          part.full("type"));
    }
    const char* field = is_text ? "text" : "refusal";
    const auto words = part.text(field);
    if (!words) refuse(part.full(field), "{} is missing", part.full(field));
    text += *words;
    marks.read(part, number, text.size());
    part.ignore({"annotations", "logprobs"});
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

/// Whether and which functions are called.
struct ToolChoice {
  enum class Kind : std::uint8_t { may, must, none } kind = Kind::may;
  std::string name = {};  ///< the one that must be called; empty: any
};

ToolChoice tool_choice_of(Fields& f) {
  using Kind = ToolChoice::Kind;
  const Json* value = f.find("tool_choice");
  if (value == nullptr || *value == "auto") return {};
  if (*value == "none") return {Kind::none};
  if (*value == "required" || *value == "any") return {Kind::must};
  if (value->is_object() && value->value("type", Json()) == "function") {
    Fields choice(*value, "tool_choice.");
    choice.text("type");
    const Json* function = choice.find("function");
    choice.end();
    if (function == nullptr) refuse("tool_choice.function", "tool_choice.function is missing");
    Fields about(*function, "tool_choice.function.");
    const auto name = about.text("name");
    about.end();
    if (!name) refuse("tool_choice.function.name", "tool_choice.function.name is missing");
    return {Kind::must, *name};
  }
  throw ApiError(
      400, "unsupported_parameter",
      fmt::format("tool_choice: {} is not supported; known: \"auto\", \"none\", \"required\", and "
                  "{{\"type\": \"function\", \"function\": {{\"name\": …}}}}",
                  shown(*value)),
      "tool_choice");
}

/// The functions that the model may call, and as the template takes them; empty: none.
std::string tools_of(Fields& f, const ToolChoice& choice, std::vector<Function>& functions,
                     CacheMarks& marks) {
  const Json* tools = f.find("tools");
  if (tools == nullptr) return "";
  if (!tools->is_array()) refuse("tools", "tools: {} is not an array", shown(*tools));
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}].", i));
    if (!marks.last()) marks.read(tool, 0, 0);  // they stand before the first message
    const Json* function = tool.find("function");
    if (tool.text("type").value_or("") != "function" || function == nullptr) {
      refuse(tool.full("type"), "{}: only tools of type \"function\" are supported",
             tool.full("type"));
    }
    Fields about(*function, tool.full("function."));
    const auto name = about.text("name");
    if (!name) refuse(about.full("name"), "{} is missing", about.full("name"));
    if (choice.kind == ToolChoice::Kind::none) continue;
    const Json* parameters = about.find("parameters");
    functions.push_back({*name, parameters == nullptr ? Json() : *parameters});
  }
  return functions.empty() ? "" : tools->dump();
}

/// The schema of a call of one of the functions that must be called. `arguments`: the member's
/// name.
std::shared_ptr<const Grammar> grammar_of_calls(const ToolChoice& choice,
                                                const std::vector<Function>& functions,
                                                const std::string& arguments) {
  std::vector<CallSchema> calls;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const Function& one = functions[i];
    if (!choice.name.empty() && choice.name != one.name) continue;
    calls.push_back({one.name, one.parameters, fmt::format("tools[{}].function.parameters", i)});
  }
  if (calls.empty()) {
    refuse("tool_choice", "tool_choice: {} is not among the functions of tools",
           choice.name.empty() ? "\"required\"" : shown(Json(choice.name)));
  }
  return compile_calls(calls, arguments);
}

std::vector<ChatMessage> messages_of(Fields& fields, Pictures& pictures, CacheMarks& marks) {
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
             "{}role: {} is unknown; known: \"system\", \"developer\", \"user\", \"assistant\", "
             "\"tool\"",
             where, shown(Json(role)));
    }
    Json more = Json::object();
    const Json* calls = role == "assistant" ? message.find("tool_calls") : nullptr;
    if (calls != nullptr && !calls->empty()) {
      more["tool_calls"] = calls_of(*calls, where + "tool_calls", room);
    }
    if (role == "assistant") {
      const auto thoughts = message.text("reasoning_content"), other = message.text("reasoning");
      if (thoughts || other) {  // templates call them by two names
        more["reasoning_content"] = more["thinking"] = thoughts.value_or(other.value_or(""));
      }
    }
    if (role == "tool") {
      if (const auto id = message.text("tool_call_id")) more["tool_call_id"] = *id;
    }
    if (const auto name = message.text("name")) more["name"] = *name;
    const bool is_null = (*list)[i].contains("content") && (*list)[i]["content"].is_null();
    out.push_back(
        {role,
         content_of(message, where, is_null || more.contains("tool_calls"), pictures, marks, i),
         more.empty() ? "" : more.dump()});
    marks.read(message, i, out.back().content.size());
    if (role != "assistant") message.only("tool_calls", Json::array());
    message.only("function_call", nullptr);
    message.only("audio", nullptr);
    for (const char* begun : {"prefix", "partial"}) {
      const bool last = role == "assistant" && i + 1 == list->size();
      if (last) {
        message.flag(begun, true);  // which the last message says by its role
      } else {
        message.only(begun, false);
      }
    }
    message.ignore({"refusal", "annotations", "id", "parsed", "reasoning_details",
                    "thinking_blocks", "provider_specific_fields"});
    message.end();
  }
  return out;
}

/// response_format; nullptr: any text.
std::shared_ptr<const Grammar> parse_format(const Json& format) {
  Fields f(format, "response_format.");
  const std::string type = f.text("type").value_or("");
  const Json* about = type == "json_schema" ? f.find("json_schema") : nullptr;
  const Json* own = type == "json_object" ? f.find("schema") : nullptr;
  f.end();
  if (type == "text") return nullptr;
  if (own != nullptr) return compile_schema(*own, "response_format.schema");
  if (type == "json_object") return any_json_object();
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

/// Any whole number; none, and -1, which some clients send for none: drawn.
std::uint64_t seed_of(Fields& f) {
  const Json* seed = f.find("seed");
  if (seed == nullptr || *seed == -1) return std::random_device()();
  if (seed->is_number_unsigned()) return seed->get<std::uint64_t>();
  if (!seed->is_number_integer()) refuse("seed", "seed: {} is not a whole number", shown(*seed));
  return static_cast<std::uint64_t>(seed->get<std::int64_t>());
}

/// A number of tokens; none, and -1, which some clients send for no limit: those of the server.
std::optional<std::uint64_t> limit_of(Fields& f, const char* name, std::uint64_t least) {
  const Json* value = f.find(name);
  if (value != nullptr && *value == -1) return std::nullopt;
  return f.count(name, least, kMostTokens);
}

/// {"TOKEN": bias, …}
std::vector<std::pair<Token, float>> logit_bias_of(Fields& f, const Tokenizer& tokenizer) {
  std::vector<std::pair<Token, float>> out;
  const Json* all = f.find("logit_bias");
  if (all == nullptr) return out;
  if (!all->is_object() || all->size() > kMostBiases) {
    refuse("logit_bias", "logit_bias: {} is not an object of at most {} tokens", shown(*all),
           kMostBiases);
  }
  for (const auto& [name, bias] : all->items()) {
    Token token = kNoToken;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    const bool known = error == std::errc() && end == name.data() + name.size() && token >= 0 &&
                       static_cast<std::size_t>(token) < tokenizer.size();
    if (!known) {
      refuse("logit_bias", "logit_bias: {} is not a token from 0 to {}", shown(Json(name)),
             tokenizer.size() - 1);
    }
    const double value = bias.is_number() ? bias.get<double>() : std::nan("");
    if (!(value >= -100 && value <= 100)) {
      refuse("logit_bias", "logit_bias: {} of token {} is not a number from -100 to 100",
             shown(bias), token);
    }
    out.emplace_back(token, static_cast<float>(value));
  }
  return out;
}

/// What both kinds of request have in common.
void parse_common(Fields& f, const RequestLimits& limits, const Tokenizer& tokenizer,
                  TextRequest& out) {
  f.text("model");  // there is one, by whatever name clients know it
  GenerateOptions& g = out.job.generate;
  SamplingOptions& s = g.sampling;
  s = limits.sampling;
  s.temperature = static_cast<float>(f.number("temperature", 0, 2, s.temperature));
  s.top_p = static_cast<float>(f.number("top_p", 0, 1, s.top_p));
  s.min_p = static_cast<float>(f.number("min_p", 0, 1, s.min_p));
  if (s.min_p == 1) refuse("min_p", "min_p: must be below 1");
  const Json* top_k = f.find("top_k");
  const bool all = top_k != nullptr && *top_k == -1;  // as vLLM's clients say
  s.top_k = all ? 0 : f.count("top_k", 0, kMostTokens).value_or(s.top_k);
  if (s.top_p == 0) {  // none but the likeliest
    s.top_p = 1;
    s.top_k = 1;
  }
  s.repetition_penalty = static_cast<float>(f.number("repetition_penalty", 1, 100, 1));
  s.presence_penalty = static_cast<float>(f.number("presence_penalty", -2, 2, 0));
  s.frequency_penalty = static_cast<float>(f.number("frequency_penalty", -2, 2, 0));
  s.logit_bias = logit_bias_of(f, tokenizer);
  s.seed = seed_of(f);
  const auto most = limit_of(f, "max_tokens", out.chat ? 1 : 0);
  const auto most_made = limit_of(f, "max_completion_tokens", 1);
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
    o.flag("include_usage", false);
    o.only("include_obfuscation", false);
    o.end();
  }
  if (const Json* format = f.find("response_format")) {
    if (auto json = parse_format(*format)) out.job.grammar.emplace(std::move(json));
  }
  const bool has_format = out.job.grammar.has_value();
  if (const auto grammar = f.text("grammar"); grammar && !grammar->empty()) {
    if (has_format) refuse("response_format", "response_format: not together with grammar");
    naming("grammar", [&] { out.job.grammar.emplace(parse_gbnf(*grammar)); });
  }
  if (const auto regex = f.text("regex"); regex && !regex->empty()) {
    if (has_format) refuse("response_format", "response_format: not together with regex");
    if (out.job.grammar) refuse("regex", "regex: not together with grammar");
    naming("regex", [&] { out.job.grammar.emplace(parse_expression(*regex)); });
  }
  // What others offer, off.
  for (const auto& [name, off] :
       std::initializer_list<std::pair<const char*, Json>>{{"min_tokens", 0},
                                                           {"length_penalty", 1},
                                                           {"use_beam_search", false},
                                                           {"typical_p", 1},
                                                           {"tfs_z", 1},
                                                           {"mirostat", 0},
                                                           {"dry_multiplier", 0},
                                                           {"xtc_probability", 0},
                                                           {"skip_special_tokens", true},
                                                           {"spaces_between_special_tokens", true},
                                                           {"include_stop_str_in_output", false}}) {
    f.only(name, off);
  }
  out.job.keep = parse_retention(f);
  out.job.salt = parse_salt(f);
  f.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prediction",
            "cache_prompt", "id_slot", "keep_alive", "priority", "request_id"});
}

void check_form(const Context& context, bool chat) {
  const bool is_chat = context.info.form.starts_with("chat");
  if (is_chat == chat) return;
  refuse("context", "context: {} is of the form \"{}\": use {}", context.info.id,
         is_chat ? "chat" : "raw", is_chat ? "/v1/chat/completions" : "/v1/completions");
}

std::shared_ptr<const Context> context_of(const Json& id, const std::string& owner, bool chat,
                                          Contexts& contexts) {
  if (!id.is_string()) {
    refuse("context", "context: {} is neither an id nor an array of at least one", shown(id));
  }
  std::shared_ptr<const Context> out;
  try {
    out = contexts.get(id.get<std::string>(), owner);
  } catch (const Error& error) {
    throw ApiError(500, "bad_context", error.what(), "context");
  }
  if (!out) {
    throw ApiError(404, "context_not_found",
                   fmt::format("context: there is no {}; POST /v1/contexts makes one", shown(id)),
                   "context");
  }
  check_form(*out, chat);
  return out;
}

std::shared_ptr<const Context> contexts_of(const Json& ids, const std::string& owner, bool chat,
                                           const Tokenizer& tokenizer, Contexts& contexts) {
  std::vector<std::shared_ptr<const Context>> all;
  for (const Json& id : ids) all.push_back(context_of(id, owner, chat, contexts));
  return naming("context", [&] { return joined_context(all, chat, tokenizer); });
}

/// What a library is asked: the last question, and all of a conversation's.
struct Asked {
  std::string last, all;
};

/// The sections that the last question may be about, and the one that the conversation is about.
/// The job stands behind the first of them.
void find_candidates(const Asked& asked, const RequestLimits& limits, TextRequest& out) {
  constexpr std::size_t kMost = 3;
  if (limits.library == nullptr) {
    refuse("context", "context: this server has no library; start it with --library");
  }
  out.asks_library = true;
  out.question = asked.all;
  out.candidates = naming("context", [&] { return limits.library->find(asked.last, kMost); });
  if (asked.all != asked.last) {
    for (Candidate& one : limits.library->find(asked.all, out.candidates.empty() ? kMost : 1)) {
      const bool there = std::ranges::count(out.candidates, one.context, &Candidate::context) > 0;
      if (!there) out.candidates.push_back(std::move(one));
    }
  }
  if (out.candidates.empty()) return;
  out.job.context = out.candidates.front().context;
  check_form(*out.job.context, out.chat);
}

/// The job goes on with a session.
void place_in_session(const std::string& id, const RequestLimits& limits, const std::string& owner,
                      Job& job) {
  const auto session = limits.sessions ? limits.sessions->find(id, owner) : std::nullopt;
  if (!session) {
    throw ApiError(
        404, "session_not_found",
        fmt::format("session: there is no {}; POST /v1/sessions makes one", shown(Json(id))),
        "session");
  }
  job.session = id;
  job.cache = session->cache;
  job.compacts = session->compacts;
  job.keep = std::max(job.keep, session->retention());
}

void parse_place(Fields& f, const RequestLimits& limits, const Tokenizer& tokenizer,
                 Contexts& contexts, const std::string& owner, const Asked& asked,
                 TextRequest& out) {
  Job& job = out.job;
  job.owner = owner;
  const Json* context = f.find("context");
  const Json* cache = f.find("cache");
  job.cite = out.cites = f.flag("cite", false);
  if (const auto id = f.text("session")) {
    if (context != nullptr || cache != nullptr || job.cite) {
      refuse("session", "session: {} has its own cache; leave out context, cache and cite",
             shown(Json(*id)));
    }
    return place_in_session(*id, limits, owner, job);
  }
  if (context == nullptr) {
    if (job.cite) {
      refuse("cite", "cite: only with a context: POST /v1/contexts reads the text to be cited");
    }
    return parse_cache(cache, limits, job);
  }
  if (cache != nullptr) {
    refuse("cache", "cache: the context {} has its own; leave it out", shown(*context));
  }
  if (*context == "library") return find_candidates(asked, limits, out);
  const bool several = context->is_array() && context->size() > 1;
  if (several && job.cite) refuse("cite", "cite: only with one context");
  job.context =
      several ? contexts_of(*context, owner, out.chat, tokenizer, contexts)
              : context_of(context->is_array() && context->size() == 1 ? (*context)[0] : *context,
                           owner, out.chat, contexts);
}

/// A conversation that is compacted goes on beyond the model's positions where these hold what it
/// never drops.
void go_on(CacheOptions& cache, const RequestLimits& limits) {
  if (!limits.endless || !takes_reach(cache.policy)) return;
  std::int64_t least = 0;
  for (const char* part : {"sink", "window", "chunk"}) least += cache.policy.integer(part);
  cache.positions = static_cast<std::size_t>(least) <= limits.positions ? Positions::rolling
                                                                        : Positions::absolute;
}

/// The first tokens of a job's text, as many as it shares with `other`, are never dropped.
void protect_head(Job& job, const std::vector<Token>& other, const RequestLimits& limits) {
  constexpr std::size_t kLeast = 4;
  const auto head =
      static_cast<std::size_t>(std::ranges::mismatch(job.prompt, other).in1 - job.prompt.begin());
  job.cache.policy = job.cache.policy.with("sink", fmt::format("{}", std::max(kLeast, head)));
  go_on(job.cache, limits);
}

/// The variables that a request sets in the chat template, as a JSON object; empty: none. Sets the
/// job's budget of thoughts.
std::string template_variables(Fields& f, Job& job) {
  Json out = Json::object();
  if (const auto effort = f.text("reasoning_effort")) {
    out["reasoning_effort"] = *effort;
    if (*effort == "none") out["enable_thinking"] = false;
  }
  if (const Json* thinking = f.find("thinking")) {
    Fields t(*thinking, "thinking.");
    const std::string type = t.text("type").value_or("");
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      refuse("thinking.type",
             "thinking.type: {} is unknown; known: \"enabled\", \"disabled\", \"adaptive\"",
             shown(Json(type)));
    }
    job.thinking_budget = t.count("budget_tokens", 0, kMostTokens);
    t.ignore({"display"});
    t.end();
    if (type != "adaptive") out["enable_thinking"] = type == "enabled";
  }
  if (const auto budget = f.count("thinking_budget", 0, kMostTokens)) job.thinking_budget = budget;
  if (f.find("enable_thinking") != nullptr) {
    out["enable_thinking"] = f.flag("enable_thinking", true);
  }
  if (const Json* given = f.find("chat_template_kwargs")) {
    if (!given->is_object()) {
      refuse("chat_template_kwargs", "chat_template_kwargs: {} is not an object", shown(*given));
    }
    out.update(*given);
    for (const char* ours :
         {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "documents"}) {
      if (!given->contains(ours)) continue;
      const std::string name = fmt::format("chat_template_kwargs.{}", ours);
      refuse(name, "{}: the request's own fields say it; leave it out", name);
    }
  }
  // Templates call the switch by two names.
  if (out.contains("enable_thinking") && !out.contains("thinking")) {
    out["thinking"] = out["enable_thinking"];
  }
  return out.empty() ? "" : out.dump();
}

/// Whether thoughts come as reasoning_content.
bool splits_thoughts(Fields& f) {
  const std::string format = f.text("reasoning_format").value_or("auto");
  if (format != "auto" && format != "deepseek" && format != "none") {
    refuse("reasoning_format",
           "reasoning_format: {} is unknown; known: \"auto\", \"deepseek\", \"none\"",
           shown(Json(format)));
  }
  return format != "none";
}

/// A text or tokens.
std::vector<Token> prompt_of(const Json& prompt, const std::string& name,
                             const Tokenizer& tokenizer, bool has_context) {
  std::vector<Token> out;
  if (prompt.is_string()) {
    const std::string& text = prompt.get_ref<const std::string&>();
    naming(name, [&] {
      const QuestionForm form = QuestionForm::raw("");
      out = has_context ? form.question(tokenizer, text) : form.whole(tokenizer, text);
    });
  } else if (prompt.is_array()) {
    for (const Json& token : prompt) {
      if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= tokenizer.size()) {
        refuse(name, "{}: {} is not a token from 0 to {}", name, shown(token),
               tokenizer.size() - 1);
      }
      out.push_back(token.get<Token>());
    }
  } else {
    refuse(name, "{}: {} is neither a text nor an array of tokens", name, shown(prompt));
  }
  if (out.empty()) refuse(name, "{}: there is nothing in it", name);
  return out;
}

/// Whether the model goes on with the last message, an answer that has begun.
bool goes_on_with_last(Fields& f, const std::vector<ChatMessage>& messages) {
  const ChatMessage& last = messages.back();
  const bool begun =
      last.role == "assistant" && last.more.find("\"tool_calls\"") == std::string::npos;
  const bool wanted = f.flag("continue_final_message", begun);
  if (wanted && !begun) {
    refuse("continue_final_message", "continue_final_message: the last message is no answer");
  }
  if (wanted) {
    f.flag("add_generation_prompt", false);
  } else {
    f.only("add_generation_prompt", true);
  }
  return wanted;
}

/// What an answer that has begun thinks; empty: nothing.
std::string thoughts_of(const ChatMessage& message) {
  if (message.more.empty()) return "";
  return parse_json_text<Json>(message.more, "a message").value("reasoning_content", "");
}

/// Whether an answer that has begun is still thinking.
bool is_thinking(const ChatMessage& message) {
  const std::string& text = message.content;
  if (text.empty()) return !thoughts_of(message).empty();
  return std::string_view(text)
             .substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()))
             .starts_with("<think>") &&
         text.find("</think>") == std::string::npos;
}

/// The text up to where the model goes on; `goes_on`: with the last message.
std::string text_of_chat(const Tokenizer& tokenizer, std::vector<ChatMessage> messages,
                         const ChatOptions& options, bool goes_on) {
  const ChatTemplate form = ChatTemplate::of(tokenizer, !options.tools.empty());
  if (!goes_on) return form.format(messages, options);
  ChatMessage last = messages.back();
  if (!last.content.empty()) {
    messages.back().content += kEnd;
    ChatOptions ended = options;
    ended.add_generation_prompt = false;
    try {
      std::string text = form.format(messages, ended);
      const std::size_t end = text.rfind(kEnd);
      if (end != std::string::npos) return text.substr(0, end);
    } catch (const Error&) {  // some templates refuse to end with an answer
    }
  }
  messages.pop_back();
  std::string text = form.format(messages, options);
  const std::size_t end = text.find_last_not_of(" \t\r\n") + 1;
  const bool open = std::string_view(text).substr(0, end).ends_with("<think>");
  const std::string thoughts = thoughts_of(last);
  if (last.content.empty() && !thoughts.empty() && !writes_channels(tokenizer)) {
    return text + (open ? "" : "<think>\n") + thoughts;
  }
  if (last.content.empty()) return text;
  return text + (open && !is_thinking(last) ? "\n</think>\n\n" : "") + last.content;
}

/// Whether the model's template tells it of its functions.
bool knows_tools(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                 const ChatOptions& options) {
  try {
    ChatTemplate::of(tokenizer, true).format(messages, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return false;
  }
  return true;
}

/// Tells a model of functions whose template does not: in the system's text, or before the user's
/// where the template has none. Calls and results of the conversation become texts.
void tell_of_tools(const Tokenizer& tokenizer, const ToolChoice& choice, const Json& tools,
                   const std::string& arguments, std::vector<ChatMessage>& messages,
                   const ChatOptions& options) {
  std::string words = fmt::format(
      "Call one of these functions. Answer with one JSON object: "
      "{{\"name\": NAME, \"{}\": OBJECT}}",
      arguments);
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    if (choice.name.empty() || function["name"] == choice.name) words += "\n" + function.dump();
  }
  for (ChatMessage& message : messages) {
    if (message.role == "tool") {
      message = {"user", "Result: " + message.content};
    } else if (!message.more.empty()) {
      Json more = parse_json_text<Json>(message.more, "a message");
      for (const Json& call : more.value("tool_calls", Json::array())) {
        const Json& function = call["function"];
        message.content += message.content.empty() ? "" : "\n";
        message.content += Json({{"name", function["name"]},
                                 {arguments, function.value("arguments", Json::object())}})
                               .dump();
      }
      more.erase("tool_calls");
      message.more = more.empty() ? "" : more.dump();
    }
  }
  std::vector<ChatMessage> told = messages;
  if (told[0].role == "system") {
    told[0].content += "\n\n" + words;
  } else {
    told.insert(told.begin(), {"system", words});
  }
  try {
    const std::string text = ChatTemplate::of(tokenizer).format(told, options);
    if (text.find(words.substr(0, words.find('\n'))) != std::string::npos) {
      messages = std::move(told);
      return;
    }
  } catch (const Error&) {  // it refuses a system's text
  }
  for (ChatMessage& message : messages) {
    if (message.role != "user") continue;
    message.content.insert(0, words + "\n\n");
    return;
  }
}

/// Tokens of a conversation whose first message goes on after a context. What a system message says
/// stands before the text if it was read with it, and before the user's message otherwise.
std::vector<Token> after_context(const Tokenizer& tokenizer, const Context& context,
                                 std::vector<ChatMessage> messages, const ChatOptions& options,
                                 bool goes_on) {
  const std::string_view place = kPlace;  // of the text that was read
  std::string system;
  std::size_t first = 0;
  for (; first < messages.size() && messages[first].role == "system"; ++first) {
    if (messages[first].content == context.info.system) continue;
    system += messages[first].content + "\n\n";
  }
  if (first == messages.size() || messages[first].role != "user") {
    const std::size_t wrong = std::min(first, messages.size() - 1);
    refuse(fmt::format("messages[{}].role", wrong),
           "messages[{}].role: the first message after a context, but for the system's, must be of "
           "the user",
           wrong);
  }
  messages.erase(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(first));
  messages[0].content.insert(0, std::string(place) + system);
  const std::string text = text_of_chat(tokenizer, std::move(messages), options, goes_on);
  const std::size_t at = text.find(place);
  require(at != std::string::npos, "the model's chat template leaves out the first message");
  return encode_more(tokenizer, text.substr(at + place.size()), true);
}

/// The text of a file that comes in base64, of a data URL too. `note`: see DocumentPart.
std::string text_of_file(std::string_view base64, const std::string& name, std::string& note) {
  std::string_view media_type;
  if (base64.starts_with("data:")) {
    const std::size_t comma = std::min(base64.find(','), base64.size() - 1);
    media_type = base64.substr(5, comma - std::min<std::size_t>(comma, 5));
    base64.remove_prefix(comma + 1);
  }
  std::string bytes = decode_base64(base64);
  if (bytes.empty()) refuse("file", "file: no bytes in base64");
  std::string text;
  naming("file", [&] {
    const std::string shown_name = name.empty() ? "document" : name;
    const std::vector<DocumentPart> parts =
        read_document(std::move(bytes), shown_name, shown_name, media_type);
    text = joined_text(parts, parts.front().page > 0);
    note = parts.front().note;
  });
  return text;
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

void parse_cache(const Json* value, const RequestLimits& limits, Job& job) {
  CacheOptions& out = job.cache = limits.cache;
  if (value == nullptr) return;
  Fields f(*value, "cache.");
  const Json* bytes = f.find("bytes");
  const auto method = f.text("method");
  const auto protocol = f.text("protocol"), positions = f.text("positions");
  const auto type = f.text("type"), key_type = f.text("key_type"),
             value_type = f.text("value_type"), compact = f.text("compact");
  f.end();
  if (method) naming("cache.method", [&] { return Policy::parse(*method); });
  if (compact && *compact != "auto") {
    refuse("cache.compact", "cache.compact: {} is unknown; known: \"auto\"", shown(Json(*compact)));
  }
  const bool guarded = bytes != nullptr && *bytes == "auto" && limits.guard != nullptr;
  if (guarded && (method || compact)) {
    refuse("cache.bytes", "cache.bytes: auto chooses for itself; leave out method and compact");
  }
  naming("cache", [&] {
    if (guarded) bytes = nullptr;
    if (bytes != nullptr || method) {
      out.policy = policy_of(method.value_or(bytes != nullptr ? limits.sized_method : ""),
                             bytes != nullptr ? bytes_of(*bytes, "cache.bytes") : "");
    }
    if (protocol) out.protocol = parse_protocol(*protocol);
    if (positions) out.positions = parse_positions(*positions);
    if (type) out.key_type = out.value_type = parse_storage_type(*type);
    if (key_type) out.key_type = parse_storage_type(*key_type);
    if (value_type) out.value_type = parse_storage_type(*value_type);
    if (guarded) out = limits.guard->reading(out);
  });
  if (!compact) return;
  if (!out.policy.info().global_budget || !out.policy.has("bytes") ||
      out.policy.memory("bytes").needs_length()) {
    refuse("cache.compact",
           "cache.compact: needs bytes of a size, such as \"256M\", and calibrated or replay");
  }
  // An eighth of what the budget holds exactly comes between two divisions, and is never dropped.
  const std::size_t part = out.policy.memory("bytes").bytes(0, 0) / limits.token_bytes / 8;
  // Nor is it much beside the model's positions.
  const std::size_t most = std::clamp<std::size_t>(limits.positions / 8, 16, 4096);
  const std::size_t tokens = std::clamp<std::size_t>(part, 16, most);
  out.policy =
      out.policy.with("chunk", fmt::format("{}", tokens)).with("window", fmt::format("{}", tokens));
  out.protocol = Protocol::stream;
  job.compacts = true;
  go_on(out, limits);
}

std::vector<std::vector<Token>> prompts_of(const Json& prompt, const std::string& name,
                                           std::size_t most, const Tokenizer& tokenizer,
                                           bool has_context) {
  const bool several =
      prompt.is_array() && !prompt.empty() && (prompt[0].is_string() || prompt[0].is_array());
  if (!several) return {prompt_of(prompt, name, tokenizer, has_context)};
  if (prompt.size() > most) {
    refuse(name, "{}: {} texts; at most {} are taken at once", name, prompt.size(), most);
  }
  std::vector<std::vector<Token>> out;
  for (const Json& one : prompt) out.push_back(prompt_of(one, name, tokenizer, has_context));
  return out;
}

Job TextRequest::job_of(std::size_t i) const {
  Job out = job;
  if (!prompts.empty()) out.prompt = prompts[i];
  if (!chat) out.compress_at = out.prompt.size();
  return out;
}

namespace {

/// Tokens of a prompt up to a place in its messages.
template <typename Encode>
std::size_t tokens_before(const CacheMarks::Place& place, std::vector<ChatMessage> messages,
                          const std::vector<Token>& prompt, const Encode& encode) {
  std::string& text = messages[place.message].content;
  const bool last = place.message + 1 == messages.size() && place.bytes == text.size();
  if (last) return prompt.size();
  text.resize(std::min(place.bytes, text.size()));
  text += kPlace;
  messages.resize(place.message + 1);
  const std::vector<Token> cut = encode(messages);
  return static_cast<std::size_t>(std::ranges::mismatch(prompt, cut).in1 - prompt.begin());
}

}  // namespace

TextRequest parse_chat(const Json& body, const RequestLimits& limits, const Tokenizer& tokenizer,
                       Contexts& contexts, const std::string& owner) {
  TextRequest out;
  out.chat = out.job.chat = true;
  Fields f(body);
  parse_common(f, limits, tokenizer, out);
  Pictures pictures(limits.vision);
  CacheMarks marks;
  std::vector<ChatMessage> messages = messages_of(f, pictures, marks);
  marks.read(f, messages.size() - 1, messages.back().content.size());  // of the whole request
  out.logprobs = f.flag("logprobs", false);
  if (const auto top = f.count("top_logprobs", 0, 20)) {
    if (!out.logprobs) refuse("top_logprobs", "top_logprobs: only with \"logprobs\": true");
    out.job.generate.alternatives = *top;
  }
  ChatOptions options = chat_options(tokenizer, true);
  const ToolChoice choice = tool_choice_of(f);
  options.tools = tools_of(f, choice, out.job.functions, marks);
  out.several_calls = f.flag("parallel_tool_calls", true);
  options.variables = template_variables(f, out.job);
  const bool goes_on = goes_on_with_last(f, messages);
  f.only("functions", Json::array());
  f.only("modalities", Json::array({"text"}));
  f.only("add_special_tokens", false);
  Asked asked;
  for (const ChatMessage& message : messages) {
    if (message.role != "user") continue;
    asked.last = message.content + "\n";
    asked.all += asked.last;
  }
  parse_place(f, limits, tokenizer, contexts, owner, asked, out);
  out.job.split_thoughts = splits_thoughts(f);
  f.end();
  Job& job = out.job;
  const bool must_call = choice.kind == ToolChoice::Kind::must;
  const Token call_tag = tokenizer.find("<tool_call>");
  if (must_call) {
    // A format is that of answers without calls.
    if (!(f.text("grammar").value_or("") + f.text("regex").value_or("")).empty()) {
      refuse("grammar", "grammar: not together with a tool_choice that calls");
    }
    const bool llama = call_tag == kNoToken && tokenizer.find("<|python_tag|>") != kNoToken;
    const std::string arguments = llama ? "parameters" : "arguments";
    job.grammar.emplace(grammar_of_calls(choice, job.functions, arguments));
    if (!job.context && !knows_tools(tokenizer, messages, options)) {
      const Json tools = parse_json_text<Json>(std::exchange(options.tools, ""), "tools");
      naming("messages",
             [&] { tell_of_tools(tokenizer, choice, tools, arguments, messages, options); });
    }
  }
  if (goes_on && job.grammar) {
    const std::string last = fmt::format("messages[{}]", f.find("messages")->size() - 1);
    refuse(last,
           "{}: an answer that has begun is held to no form; leave out the message, or "
           "response_format, grammar, regex and tool_choice",
           last);
  }
  const auto encode = [&](std::span<const ChatMessage> all, bool with_last = false) {
    try {
      const std::string text =
          text_of_chat(tokenizer, {all.begin(), all.end()}, options, with_last);
      return tokenizer.encode(text, {.add_special = false, .parse_special = true});
    } catch (const Error& error) {
      if (options.tools.empty() || error.code() != ErrorCode::unsupported) throw;
      throw ApiError(400, "unsupported_parameter", fmt::format("tools: {}", error.what()), "tools");
    }
  };
  naming("messages", [&] {
    if (job.context) {
      if (!options.tools.empty()) {
        throw ApiError(400, "unsupported_parameter",
                       "tools: they stand before the text of a context, which "
                       "is read already",
                       "tools");
      }
      job.prompt = after_context(tokenizer, *job.context, messages, options, goes_on);
      return;
    }
    job.prompt = encode(messages, goes_on);
    job.compress_at = job.prompt.size();
    // The first turn is what the method summarizes, so that later turns find it summarized.
    std::size_t first = 0;
    while (first < messages.size() && messages[first].role != "user") ++first;
    if (first + 1 < messages.size() && !stays_exact(job.cache)) {
      const std::vector<Token> turn = encode(std::span(messages).first(first + 1));
      if (turn.size() < job.prompt.size() &&
          std::equal(turn.begin(), turn.end(), job.prompt.begin())) {
        job.compress_at = turn.size();
      }
    }
    if (job.compacts && first < messages.size()) {
      std::vector<ChatMessage> other(messages.begin(),
                                     messages.begin() + static_cast<std::ptrdiff_t>(first + 1));
      other.back().content = kPlace;
      protect_head(job, encode(other), limits);
    }
  });
  if (job.prompt.empty()) refuse("messages", "messages: the prompt is empty");
  job.keep = std::max(job.keep, marks.keep());
  if (marks.last() && !job.context) {
    naming("messages",
           [&] { job.marked = tokens_before(*marks.last(), messages, job.prompt, encode); });
  }
  job.thoughts_open =
      ends_within_thoughts(tokenizer, job.prompt) || (goes_on && is_thinking(messages.back()));
  if (goes_on) job.generate.text_start = false;  // nor does it lose its first space
  naming("messages", [&] { pictures.place_in(job); });
  if (job.grammar) {
    // JSON is no thought, and a call stands in its tag where the model knows one.
    std::string more = job.thoughts_open ? "</think>\n\n" : "";
    if (writes_channels(tokenizer)) more = kFinalChannel;
    if (must_call && call_tag != kNoToken) more += "<tool_call>\n";
    const std::vector<Token> tokens = encode_more(tokenizer, more, true);
    job.prompt.insert(job.prompt.end(), tokens.begin(), tokens.end());
    job.split_thoughts = job.thoughts_open = false;
    job.thinking_budget.reset();
  }
  return out;
}

TextRequest parse_completion(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer, Contexts& contexts,
                             const std::string& owner) {
  TextRequest out;
  Fields f(body);
  parse_common(f, limits, tokenizer, out);
  if (const auto top = f.count("logprobs", 0, 20)) {
    out.logprobs = true;
    out.job.generate.alternatives = *top;
  }
  out.echo = f.flag("echo", false);
  out.job.score_prompt = out.echo && out.logprobs;
  f.only("suffix", "");
  f.only("continue_final_message", false);
  f.only("add_generation_prompt", true);
  f.only("best_of", out.job.choices);
  f.only("add_special_tokens", true);
  const Json* prompt = f.find("prompt");
  if (prompt == nullptr) refuse("prompt", "prompt is missing");
  const std::string text = prompt->is_string() ? prompt->get<std::string>() : "";
  parse_place(f, limits, tokenizer, contexts, owner, {text, text}, out);
  if (out.asks_library && text.empty()) {
    refuse("prompt", "prompt: a library is asked by one text at a time");
  }
  f.end();
  Job& job = out.job;
  // An answer begins a text for a client, but goes on after the prompt, its leading space included.
  job.generate.text_start = false;
  out.prompts = prompts_of(*prompt, "prompt", kMostPrompts, tokenizer, job.context != nullptr);
  job.prompt = out.prompts[0];
  return out;
}

std::shared_ptr<const Context> joined_context(
    std::span<const std::shared_ptr<const Context>> contexts, bool chat,
    const Tokenizer& tokenizer) {
  std::vector<JoinedDocument> documents;
  ContextInfo info = contexts.front()->info;
  for (const std::shared_ptr<const Context>& one : contexts) {
    const std::size_t before =
        documents.empty() ? 0 : tokens_before_context(tokenizer, chat, one->info.system);
    documents.push_back({std::shared_ptr<const Cache>(one, &one->cache), before});
  }
  Cache cache = join_documents(std::move(documents));
  info.tokens = cache.tokens();
  info.gauge = nullptr;  // it was of the first alone
  return std::make_shared<const Context>(Context{std::move(info), std::move(cache), Lease()});
}

DocumentRequest parse_document(const Json& body) {
  DocumentRequest out;
  Fields f(body);
  out.name = f.text("name").value_or("");
  if (out.name.empty()) refuse("name", "name: the document's is missing");
  const auto text = f.text("text"), file = f.text("file");
  if (text.has_value() == file.has_value()) refuse("file", "file: give text or file");
  out.text = file ? text_of_file(*file, out.name, out.note) : whole_text(*text);
  if (is_blank(out.text)) refuse("text", "text: the document is empty");
  out.stream = f.flag("stream", false);
  f.end();
  return out;
}

ContextRequest parse_context(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer) {
  ContextRequest out;
  Fields f(body);
  auto text = f.text("text");
  if (text) text = whole_text(*text);
  const auto file = f.text("file");
  const std::string form = f.text("form").value_or("chat");
  if (form != "chat" && form != "raw") {
    refuse("form", "form: {} is neither \"chat\" nor \"raw\"", shown(Json(form)));
  }
  out.info.name = f.text("name").value_or("");
  if (out.info.name.size() > Contexts::kMostName) {
    refuse("name", "name: {} bytes are too many; give at most {}", out.info.name.size(),
           Contexts::kMostName);
  }
  if (file) {
    if (text) refuse("file", "file: give text or file, not both");
    text = text_of_file(*file, out.info.name, out.note);
  }
  Pictures pictures(limits.vision);
  std::string places;
  if (const Json* images = f.find("images")) {
    if (!images->is_array() || form == "raw") {
      refuse("images", "images: an array of data URLs is expected, with \"form\": \"chat\"");
    }
    for (std::size_t i = 0; i < images->size(); ++i) {
      const std::string name = fmt::format("images[{}]", i);
      if (!(*images)[i].is_string()) refuse(name, "{}: a data URL is expected", name);
      places += pictures.read((*images)[i].get<std::string>(), name);
    }
    if (!text) text = "";
  }
  if (!text || (text->empty() && places.empty())) {
    refuse("text", "text: the text to be read is missing");
  }
  if (text->starts_with("%PDF-") || looks_binary(*text)) {
    refuse("text", "text: no text; the bytes of a file go to file, in base64");
  }
  out.info.system = f.text("system").value_or("");
  if (form == "raw" && !out.info.system.empty()) {
    refuse("system", "system: only with \"form\": \"chat\"");
  }
  parse_cache(f.find("cache"), limits, out.job);
  out.stream = f.flag("stream", false);
  f.end();
  naming("text", [&] {
    QuestionForm words = form == "raw"
                             ? QuestionForm::raw(*text)
                             : QuestionForm::from_template(tokenizer, out.info.system,
                                                           text->empty() ? "" : places + *text);
    if (text->empty()) words.before += places;
    out.info.form = words.to_text();
    out.info.before = words.before;
    out.job.prompt = words.begin(tokenizer);
    out.job.compress_at = out.job.prompt.size();
    if (out.job.compacts && form == "chat") {
      protect_head(out.job,
                   QuestionForm::from_template(tokenizer, out.info.system, kPlace).begin(tokenizer),
                   limits);
    }
    pictures.place_in(out.job);
  });
  out.info.created = std::time(nullptr);
  out.info.pictures = find_pictures(out.job.prompt, out.job.pictures);
  out.info.tokens = out.job.prompt.size();
  out.job.chat = form == "chat";
  out.job.choices = 0;
  return out;
}

}  // namespace ballast::serve
