// Anthropic's API of messages.
#include <algorithm>

#include "serve/formats/format.h"
#include "serve/texts/contexts.h"

namespace ballast::serve {
namespace {

/// A part of a chat completion that shows an image.
Json image_part(Fields& part) {
  Fields source = part.inside("source");
  Json out = picture_part(source.needed(source.needed("type") == "url" ? "url" : "data"));
  source.ignore({"media_type"});
  source.end();
  return out;
}

Json text_part(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

/// The content of a result: a text, or parts where it shows images. `mark`: cache_control of its
/// last part that has one.
Json content_of_result(const Json& content, const std::string& where, Json& mark) {
  if (!content.is_array()) return text_of(content, where, {"text"});
  std::string text;
  Json parts = Json::array();
  bool shows = false;
  for (std::size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], fmt::format("{}[{}].", where, i));
    const std::string type = part.needed("type");
    part.ignore({"citations"});
    if (const Json* control = part.find("cache_control")) mark = *control;
    if (type == "text") {
      text += part.needed("text");
      parts.push_back(text_part(part.needed("text")));
    } else if (type == "image") {
      parts.push_back(image_part(part));
      shows = true;
    } else {
      unsupported(part.full("type"), type, "text and image");
    }
    part.end();
  }
  return shows ? parts : Json(text);
}

/// A message of chat completions, of the parts of one of Anthropic's.
class Message {
 public:
  explicit Message(std::string role) : role_(std::move(role)) {}

  /// Results of calls are messages of their own, in `out`.
  void add(Fields& part, Json& out);
  /// The message, unless it had only results.
  void end(Json& out);

 private:
  static Json call_of(Fields& part);
  static Json result_of(Fields& part);

  std::string role_, text_, thoughts_;
  Json parts_ = Json::array(), calls_ = Json::array();
  bool has_any_ = false;    ///< parts, results too
  bool has_parts_ = false;  ///< pictures, or what is marked to be kept
  Json mark_;               ///< cache_control of what becomes no part
};

void Message::add(Fields& part, Json& out) {
  const std::string type = part.needed("type");
  const bool user = role_ == "user", assistant = role_ == "assistant";
  const Json* control = part.find("cache_control");
  part.ignore({"citations"});
  has_any_ = true;
  if (type == "text") {
    text_ += part.needed("text");
    parts_.push_back(text_part(part.needed("text")));
  } else if (type == "image" && user) {
    parts_.push_back(image_part(part));
    has_parts_ = true;
  } else if (type == "thinking" && assistant) {
    thoughts_ += part.needed("thinking");
    part.ignore({"signature"});
  } else if (type == "redacted_thinking" && assistant) {
    part.ignore({"data"});
  } else if (type == "tool_use" && assistant) {
    calls_.push_back(call_of(part));
  } else if (type == "tool_result" && user) {
    out.push_back(result_of(part));
    return part.end();
  } else {
    unsupported(part.full("type"), type, "text, image, thinking, tool_use and tool_result");
  }
  part.end();
  if (control == nullptr) return;
  const bool in_part = type == "text" || type == "image";
  (in_part ? parts_.back()["cache_control"] : mark_) = *control;
  has_parts_ = has_parts_ || in_part;
}

Json Message::call_of(Fields& part) {
  const Json* input = part.find("input");
  part.ignore({"caller"});
  return {{"id", part.needed("id")},
          {"type", "function"},
          {"function",
           {{"name", part.needed("name")}, {"arguments", input == nullptr ? "{}" : line(*input)}}}};
}

Json Message::result_of(Fields& part) {
  const Json *result = part.find("content"), *control = part.find("cache_control");
  Json out = {{"role", "tool"}, {"tool_call_id", part.needed("tool_use_id")}}, mark;
  out["content"] =
      result == nullptr ? Json("") : content_of_result(*result, part.full("content"), mark);
  if (control != nullptr) mark = *control;
  if (!mark.is_null()) out["cache_control"] = std::move(mark);
  part.ignore({"is_error"});
  return out;
}

void Message::end(Json& out) {
  if (role_ == "user" && has_any_ && text_.empty() && !has_parts_) return;
  Json one = {{"role", role_}, {"content", has_parts_ ? std::move(parts_) : Json(text_)}};
  if (!thoughts_.empty()) one["reasoning_content"] = thoughts_;
  if (!calls_.empty()) one["tool_calls"] = std::move(calls_);
  if (!mark_.is_null()) one["cache_control"] = std::move(mark_);
  out.push_back(std::move(one));
}

/// Adds what a message becomes.
void add_message(const Json& json, const std::string& where, Json& out) {
  Fields f(json, where);
  const std::string role = f.needed("role");
  if (role != "user" && role != "assistant" && role != "system") {
    refuse(where + "role", R"({}role: {} is neither "user" nor "assistant")", where,
           shown(Json(role)));
  }
  const Json& content = f.value("content");
  f.end();
  if (!content.is_array()) {
    out.push_back({{"role", role}, {"content", text_of(content, where + "content", {"text"})}});
    return;
  }
  Message message(role);
  for (std::size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], fmt::format("{}content[{}].", where, i));
    message.add(part, out);
  }
  message.end(out);
}

Json tools_of(const Json& tools) {
  Json out = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    Fields tool(tools[i], fmt::format("tools[{}].", i));
    const std::string type = tool.text("type").value_or("custom");
    if (type != "custom") unsupported(tool.full("type"), type, "\"custom\"");
    Json function = {{"name", tool.needed("name")}};
    copy(tool, function, {"description"});
    if (const Json* schema = tool.find("input_schema")) function["parameters"] = *schema;
    tool.ignore(
        {"strict", "input_examples", "eager_input_streaming", "defer_loading", "allowed_callers"});
    tool.end();
    const Json* control = tool.find("cache_control");
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
    if (control != nullptr) out.back()["cache_control"] = *control;
  }
  return out;
}

void add_tool_choice(const Json& choice, Json& chat) {
  Fields f(choice, "tool_choice.");
  const std::string type = f.needed("type");
  if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", f.needed("name")}}}};
  } else if (type == "auto" || type == "any" || type == "none") {
    chat["tool_choice"] = type;
  } else {
    unsupported("tool_choice.type", type, "auto, any, tool and none");
  }
  if (f.flag("disable_parallel_tool_use", false)) chat["parallel_tool_calls"] = false;
  f.end();
}

/// {"type": "json_schema", "schema": …}
Json response_format(const Json& format, const std::string& where) {
  Fields f(format, where + ".");
  const std::string type = f.needed("type");
  if (type != "json_schema") unsupported(where + ".type", type, "\"json_schema\"");
  Json about = {{"name", "answer"}};
  copy(f, about, {"schema"});
  f.end();
  return {{"type", type}, {"json_schema", std::move(about)}};
}

class Anthropic : public Format {
 public:
  explicit Anthropic(const Json& body) {
    Fields f(body);
    copy(f, body_,
         {"model", "max_tokens", "temperature", "top_p", "top_k", "stream", "thinking",
          "cache_control"});
    copy_extensions(f, body_);
    const Json thinking = body_.value("thinking", Json());
    hides_thoughts_ = thinking.is_object() && thinking.value("type", Json()) == "disabled";
    if (const Json* stops = f.find("stop_sequences")) body_["stop"] = *stops;
    Json messages = Json::array();
    if (const Json* system = f.find("system")) {
      const std::string text = text_of(*system, "system", {"text"});
      const bool marked = system->is_array() && std::ranges::any_of(*system, [](const Json& part) {
                            return part.contains("cache_control");
                          });
      messages.push_back({{"role", "system"}, {"content", marked ? *system : Json(text)}});
    }
    const Json& list = f.list("messages");
    for (std::size_t i = 0; i < list.size(); ++i) {
      add_message(list[i], fmt::format("messages[{}].", i), messages);
    }
    body_["messages"] = std::move(messages);
    if (f.find("tools") != nullptr) body_["tools"] = tools_of(f.list("tools"));
    if (const Json* choice = f.find("tool_choice")) add_tool_choice(*choice, body_);
    if (const Json* format = f.find("output_format")) {
      body_["response_format"] = response_format(*format, "output_format");
    }
    if (const Json* output = f.find("output_config")) {
      Fields o(*output, "output_config.");
      if (const Json* format = o.find("format")) {
        body_["response_format"] = response_format(*format, "output_config.format");
      }
      if (const auto effort = o.text("effort")) body_["reasoning_effort"] = *effort;
      o.end();
    }
    f.only("mcp_servers", Json::array());
    f.ignore({"metadata", "service_tier", "context_management", "inference_geo"});
    f.end();
  }

  Json whole(const Json& answer, const Usage& usage) override {
    const Json& choice = answer["choices"][0];
    const Json& message = choice["message"];
    Json content = Json::array();
    if (message.contains("reasoning_content") && !hides_thoughts_) {
      content.push_back(
          {{"type", "thinking"}, {"thinking", message["reasoning_content"]}, {"signature", ""}});
    }
    if (message["content"].is_string() && message["content"] != "") {
      content.push_back({{"type", "text"}, {"text", message["content"]}});
    }
    for (const Json& call : message.value("tool_calls", Json::array())) {
      content.push_back(
          {{"type", "tool_use"}, {"id", call["id"]}, {"name", call["function"]["name"]}});
      content.back()["input"] = arguments_of(call);
    }
    Json out = frame(answer["model"], std::move(content), usage);
    add_reason(choice, out);
    return out;
  }

  std::string chunk(const Json& chunk, const Usage& usage) override {
    std::string out;
    if (!begun_) {
      begun_ = true;
      Json message = frame(chunk["model"], Json::array(), usage);
      message["usage"]["output_tokens"] = 0;
      out += event({{"type", "message_start"}, {"message", std::move(message)}});
    }
    const Json& choice = chunk["choices"][0];
    const Json& delta = choice["delta"];
    if (delta.contains("reasoning_content") && !hides_thoughts_) {
      out += open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      out += add({{"type", "thinking_delta"}, {"thinking", delta["reasoning_content"]}});
    }
    if (delta.value("content", Json()).is_string() && delta["content"] != "") {
      out += open("text", {{"type", "text"}, {"text", ""}});
      out += add({{"type", "text_delta"}, {"text", delta["content"]}});
    }
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      out += close();
      out += open("tool_use", {{"type", "tool_use"},
                               {"id", call["id"]},
                               {"name", call["function"]["name"]},
                               {"input", Json::object()}});
      out += add({{"type", "input_json_delta"}, {"partial_json", call["function"]["arguments"]}});
    }
    if (!choice["finish_reason"].is_null()) add_reason(choice, end_);
    return out;
  }

  std::string end(const Usage& usage) override {
    return close() +
           event({{"type", "message_delta"}, {"delta", end_}, {"usage", to_json(usage)}}) +
           event({{"type", "message_stop"}});
  }
  std::string fail(const ApiError& error) override {
    return event(Format::error("/v1/messages", error));
  }

 private:
  static Json to_json(const Usage& u) {
    const bool hour = u.keep >= std::chrono::hours(1);
    Json out = {{"input_tokens", u.prompt - u.cached - u.kept},
                {"cache_creation_input_tokens", u.kept},
                {"cache_creation",
                 {{"ephemeral_5m_input_tokens", hour ? 0 : u.kept},
                  {"ephemeral_1h_input_tokens", hour ? u.kept : 0}}},
                {"cache_read_input_tokens", u.cached},
                {"output_tokens", u.made}};
    add_compactions(out, u);
    return out;
  }
  static void add_reason(const Json& choice, Json& out) {
    const std::string reason = choice["finish_reason"];
    const Json stop = choice.value("stop_reason", Json());
    out["stop_reason"] = reason == "length"       ? "max_tokens"
                         : reason == "tool_calls" ? "tool_use"
                         : stop.is_null()         ? "end_turn"
                                                  : "stop_sequence";
    out["stop_sequence"] = stop;
  }
  Json frame(const Json& model, Json content, const Usage& usage) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model},
            {"content", std::move(content)},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", to_json(usage)}};
  }
  // Blocks of the content follow one another; a text goes on in the block that is open.
  std::string open(const std::string& kind, Json block) {
    if (open_ == kind) return "";
    std::string out = close();
    open_ = kind;
    return out + event({{"type", "content_block_start"},
                        {"index", index_},
                        {"content_block", std::move(block)}});
  }
  std::string add(Json delta) const {
    return event({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }
  std::string close() {
    if (open_.empty()) return "";
    open_.clear();
    return event({{"type", "content_block_stop"}, {"index", index_++}});
  }

  const std::string id_ = new_id("msg_");
  bool begun_ = false;
  bool hides_thoughts_ = false;  ///< of models that think though they are told not to
  std::string open_;             ///< the block's type
  std::size_t index_ = 0;
  Json end_ = {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
};

}  // namespace

std::unique_ptr<Format> anthropic_format(const Json& body) {
  return std::make_unique<Anthropic>(body);
}

}  // namespace ballast::serve
