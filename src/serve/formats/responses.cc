// OpenAI's API of responses. Nothing is stored: each request brings its earlier items.
#include <algorithm>
#include <ctime>

#include "serve/formats/format.h"
#include "serve/texts/contexts.h"

namespace ballast::serve {
namespace {

[[noreturn]] void refuse_stored(const std::string& field) {
  throw ApiError(400, "unsupported_parameter",
                 field +
                     ": responses are not stored; send earlier items whole (many clients do "
                     "with store: false)",
                 field);
}

bool shows_pictures(const Json& content) {
  return content.is_array() && std::ranges::any_of(content, [](const Json& part) {
           return part.is_object() && part.value("type", Json()) == "input_image";
         });
}

/// Items of the input as messages: thoughts, texts and calls that follow one another are one
/// message of the assistant.
class Input {
 public:
  void add(const Json& item, const std::string& where) {
    Fields f(item, where);
    const std::string type = f.text("type").value_or("message");
    f.ignore({"id", "status", "phase"});
    if (type == "message") {
      const std::string role = f.needed("role");
      const Json& content = f.value("content");
      if (role == "user" && shows_pictures(content)) {  // parts that chat completions take
        messages_.push_back({{"role", role}, {"content", content}});
        f.end();
        return;
      }
      const std::string text =
          text_of(content, where + "content", {"input_text", "output_text", "text", "refusal"});
      if (role == "assistant") {
        Json& message = assistant();
        message["content"] = message["content"].get<std::string>() + text;
      } else {
        messages_.push_back({{"role", role}, {"content", text}});
      }
    } else if (type == "function_call") {
      Json& calls = assistant()["tool_calls"];
      calls.push_back(
          {{"id", f.needed("call_id")},
           {"type", "function"},
           {"function", {{"name", f.needed("name")}, {"arguments", f.needed("arguments")}}}});
      f.ignore({"namespace"});
    } else if (type == "function_call_output") {
      const Json& output = f.value("output");
      messages_.push_back({{"role", "tool"}, {"tool_call_id", f.needed("call_id")}});
      messages_.back()["content"] =
          shows_pictures(output)
              ? output
              : Json(text_of(output, where + "output", {"input_text", "output_text", "text"}));
    } else if (type == "reasoning") {
      const Json* content = f.find("content");
      f.ignore({"summary", "encrypted_content"});
      if (content != nullptr) {
        const std::string text = text_of(*content, where + "content", {"reasoning_text", "text"});
        if (!text.empty()) assistant()["reasoning_content"] = text;
      }
    } else if (type == "item_reference") {
      refuse_stored(where + "type");
    } else {
      unsupported(where + "type", type,
                  "message, function_call, function_call_output and reasoning");
    }
    f.end();
  }
  Json take() { return std::move(messages_); }

 private:
  Json& assistant() {
    if (messages_.empty() || messages_.back()["role"] != "assistant") {
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
    }
    return messages_.back();
  }

  Json messages_ = Json::array();
};

Json tools_of(const Json& tools) {
  Json out = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    Fields tool(tools[i], fmt::format("tools[{}].", i));
    const std::string type = tool.needed("type");
    if (type != "function") unsupported(tool.full("type"), type, "\"function\"");
    Json function = {{"name", tool.needed("name")}};
    copy(tool, function, {"description", "parameters"});
    tool.ignore({"strict", "defer_loading"});
    tool.end();
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

/// "auto", or {"type": "function", "name": …}
Json tool_choice_of(const Json& choice) {
  if (!choice.is_object()) return choice;
  Fields f(choice, "tool_choice.");
  const std::string type = f.needed("type");
  if (type != "function") unsupported("tool_choice.type", type, "\"function\"");
  Json out = {{"type", "function"}, {"function", {{"name", f.needed("name")}}}};
  f.end();
  return out;
}

class Responses : public Format {
 public:
  Responses(const Json& body, const Json& standard) {
    Fields f(body);
    copy(f, body_, {"model", "temperature", "top_p", "stream", "parallel_tool_calls"});
    copy_extensions(f, body_);
    if (const Json* most = f.find("max_output_tokens")) body_["max_tokens"] = *most;
    Json messages = Json::array();
    if (const auto text = f.text("instructions")) {
      messages.push_back({{"role", "system"}, {"content", *text}});
    }
    const Json& input = f.value("input");
    if (input.is_string()) {
      messages.push_back({{"role", "user"}, {"content", input}});
    } else {
      const Json& items = f.list("input");
      Input all;
      for (std::size_t i = 0; i < items.size(); ++i)
        all.add(items[i], fmt::format("input[{}].", i));
      for (Json& message : all.take()) messages.push_back(std::move(message));
    }
    body_["messages"] = std::move(messages);
    if (f.find("tools") != nullptr) body_["tools"] = tools_of(f.list("tools"));
    if (const Json* choice = f.find("tool_choice")) body_["tool_choice"] = tool_choice_of(*choice);
    if (const Json* reasoning = f.find("reasoning")) {
      Fields r(*reasoning, "reasoning.");
      if (const auto effort = r.text("effort")) body_["reasoning_effort"] = *effort;
      r.ignore({"summary", "generate_summary"});
      r.end();
    }
    if (const Json* text = f.find("text")) add_text(*text);
    for (const char* stored : {"previous_response_id", "conversation"}) {
      if (f.find(stored) != nullptr) refuse_stored(stored);
    }
    f.only("background", false);
    f.only("truncation", "disabled");
    f.only("prompt", nullptr);
    f.only("top_logprobs", 0);
    f.ignore({"store", "include", "metadata", "user", "safety_identifier", "service_tier",
              "stream_options", "max_tool_calls"});
    f.end();
    repeat(body, standard);
  }

  Json whole(const Json& answer, const Usage& usage) override {
    Json all = answer;  // a stream of one chunk, whose events nobody reads
    all["choices"][0]["delta"] = answer["choices"][0]["message"];
    chunk(all, usage);
    close();
    return response(status(), &usage);
  }

  std::string chunk(const Json& chunk, const Usage&) override {
    std::string out;
    if (model_.is_null()) {
      model_ = chunk["model"];
      const Json begun = response("in_progress", nullptr);
      out += send({{"type", "response.created"}, {"response", begun}});
      out += send({{"type", "response.in_progress"}, {"response", begun}});
    }
    const Json& choice = chunk["choices"][0];
    const Json& delta = choice["delta"];
    if (delta.contains("reasoning_content")) {
      out += add("reasoning", delta["reasoning_content"]);
    }
    if (delta.value("content", Json()).is_string() && delta["content"] != "") {
      out += add("message", delta["content"]);
    }
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      out += close();
      Json item = called(call), begun = item;
      begun["arguments"] = "";
      begun["status"] = "in_progress";
      out += item_event("added", begun);
      Json part = {{"type", "response.function_call_arguments.delta"},
                   {"item_id", item["id"]},
                   {"output_index", output_.size()}};
      part["delta"] = item["arguments"];
      out += send(part);
      part.erase("delta");
      part["type"] = "response.function_call_arguments.done";
      part["name"] = item["name"];
      part["arguments"] = item["arguments"];
      out += send(std::move(part));
      out += item_event("done", item);
      output_.push_back(std::move(item));
    }
    cut_ = cut_ || choice["finish_reason"] == "length";
    return out;
  }

  std::string end(const Usage& usage) override {
    std::string out = close();
    return out + send({{"type", "response." + status()}, {"response", response(status(), &usage)}});
  }

  std::string fail(const ApiError& error) override {
    std::string out = close();
    Json failed = response("failed", nullptr);
    failed["error"] = {{"code", "server_error"}, {"message", error.what()}};
    return out + send({{"type", "response.failed"}, {"response", std::move(failed)}});
  }

 private:
  /// The answer repeats what was asked.
  void repeat(const Json& body, const Json& standard) {
    about_ = Json::object();
    for (const auto& [name, otherwise] : std::initializer_list<std::pair<const char*, Json>>{
             {"instructions", nullptr},
             {"max_output_tokens", nullptr},
             {"metadata", Json::object()},
             {"parallel_tool_calls", true},
             {"previous_response_id", nullptr},
             {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
             {"store", false},
             {"temperature", standard.value("temperature", Json(1))},
             {"text", {{"format", {{"type", "text"}}}}},
             {"tool_choice", "auto"},
             {"tools", Json::array()},
             {"top_p", standard.value("top_p", Json(1))},
             {"truncation", "disabled"}}) {
      about_[name] = body.value(name, otherwise);
      if (about_[name].is_null()) about_[name] = otherwise;
    }
    about_["store"] = false;
  }

  void add_text(const Json& text) {
    Fields t(text, "text.");
    t.ignore({"verbosity"});
    if (const Json* format = t.find("format")) {
      Fields f(*format, "text.format.");
      const std::string type = f.needed("type");
      body_["response_format"] = {{"type", type}};
      if (type == "json_schema") {
        Json about = Json::object();
        copy(f, about, {"name", "description", "strict", "schema"});
        body_["response_format"]["json_schema"] = std::move(about);
      }
      f.end();
    }
    t.end();
  }

  std::string status() const { return cut_ ? "incomplete" : "completed"; }

  // Items of the output.
  static Json thoughts(const std::string& text) {
    return {{"id", new_id("rs_")},
            {"type", "reasoning"},
            {"summary", Json::array()},
            {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})},
            {"status", "completed"}};
  }
  static Json said_part(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }
  static Json said(const std::string& text) {
    return {{"id", new_id("msg_")},
            {"type", "message"},
            {"role", "assistant"},
            {"status", "completed"},
            {"content", Json::array({said_part(text)})}};
  }
  static Json called(const Json& call) {
    return {{"id", new_id("fc_")},
            {"type", "function_call"},
            {"status", "completed"},
            {"call_id", call["id"]},
            {"name", call["function"]["name"]},
            {"arguments", call["function"]["arguments"]}};
  }

  Json response(const std::string& status, const Usage* usage) const {
    Json out = {{"id", id_},        {"object", "response"}, {"created_at", created_},
                {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr},
                {"model", model_},  {"output", output_}};
    out.update(about_);
    if (status == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    out["usage"] = nullptr;
    if (usage != nullptr) {
      out["usage"] = {{"input_tokens", usage->prompt},
                      {"input_tokens_details", {{"cached_tokens", usage->cached}}},
                      {"output_tokens", usage->made},
                      {"output_tokens_details", {{"reasoning_tokens", usage->thoughts}}},
                      {"total_tokens", usage->prompt + usage->made}};
    }
    return out;
  }

  std::string send(Json data) {
    data["sequence_number"] = sequence_++;
    return event(data);
  }
  std::string item_event(const char* what, const Json& item) {
    return send({{"type", std::string("response.output_item.") + what},
                 {"output_index", output_.size()},
                 {"item", item}});
  }
  /// An event about the part of the item that is open.
  Json part_event(const std::string& type) const {
    return {{"type", "response." + type},
            {"item_id", item_["id"]},
            {"output_index", output_.size()},
            {"content_index", 0}};
  }

  /// Adds to the item of this type, which begins unless it is open.
  std::string add(const char* type, const std::string& text) {
    std::string out;
    const bool thinks = std::string_view(type) == "reasoning";
    if (item_.is_null() || item_["type"] != type) {
      out = close();
      item_ = thinks ? thoughts("") : said("");
      Json begun = item_;
      begun["content"] = Json::array();
      begun["status"] = "in_progress";
      out += item_event("added", begun);
      Json part = part_event("content_part.added");
      part["part"] = item_["content"][0];
      out += send(std::move(part));
    }
    text_ += text;
    Json part = part_event(thinks ? "reasoning_text.delta" : "output_text.delta");
    part["delta"] = text;
    if (!thinks) part["logprobs"] = Json::array();
    return out + send(std::move(part));
  }

  /// Ends the item that is open.
  std::string close() {
    if (item_.is_null()) return "";
    const bool thinks = item_["type"] == "reasoning";
    item_["content"][0]["text"] = text_;
    Json part = part_event(thinks ? "reasoning_text.done" : "output_text.done");
    part["text"] = std::exchange(text_, "");
    if (!thinks) part["logprobs"] = Json::array();
    std::string out = send(std::move(part));
    part = part_event("content_part.done");
    part["part"] = item_["content"][0];
    out += send(std::move(part));
    out += item_event("done", item_);
    output_.push_back(std::exchange(item_, nullptr));
    return out;
  }

  const std::string id_ = new_id("resp_");
  const std::int64_t created_ = std::time(nullptr);
  Json about_, model_;
  Json output_ = Json::array();  ///< items that have ended
  Json item_;                    ///< that is open
  std::string text_;             ///< of it
  std::size_t sequence_ = 0;
  bool cut_ = false;
};

}  // namespace

std::unique_ptr<Format> responses_format(const Json& body, const Json& standard) {
  return std::make_unique<Responses>(body, standard);
}

}  // namespace ballast::serve
