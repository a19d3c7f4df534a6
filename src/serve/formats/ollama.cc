// Ollama's API: /api/chat and /api/generate.
#include <ctime>

#include "serve/formats/format.h"

namespace ballast::serve {
namespace {

/// The time in UTC, as RFC 3339 writes it.
std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

void add_options(const Json& options, Json& chat) {
  Fields f(options, "options.");
  copy(f, chat,
       {"temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
        "stop"});
  if (const Json* penalty = f.find("repeat_penalty")) chat["repetition_penalty"] = *penalty;
  // Negative or 0: no limit.
  const Json* most = f.find("num_predict");
  const bool no_limit = most != nullptr && most->is_number_integer() && *most <= 0;
  if (most != nullptr && !no_limit) chat["max_tokens"] = *most;
  f.only("typical_p", 1);
  f.only("tfs_z", 1);
  f.only("mirostat", 0);
  f.only("repeat_last_n", 64);
  f.only("penalize_newline", true);
  f.ignore({"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa",
            "use_mmap", "use_mlock", "low_vram", "f16_kv", "vocab_only", "logits_all",
            "embedding_only", "mirostat_eta", "mirostat_tau"});
  f.end();
}

/// Whether a keep_alive is no time: 0, "0", "0s", "0m0s".
bool is_no_time(const Json& time) {
  if (time.is_number()) return time == 0;
  if (!time.is_string()) return false;
  const auto& text = time.get_ref<const std::string&>();
  return text.find('0') != std::string::npos &&
         text.find_first_of("123456789") == std::string::npos;
}

/// Makes the content of a message parts, if pictures come with it.
void add_images(Fields& f, Json& message) {
  if (f.find("images") == nullptr) return;
  const Json& images = f.list("images");
  if (images.empty()) return;
  Json parts = Json::array();
  for (const Json& image : images) {
    if (!image.is_string()) refuse(f.full("images"), "{}: no text in base64", f.full("images"));
    parts.push_back(picture_part(image.get<std::string>()));
  }
  parts.push_back({{"type", "text"}, {"text", message["content"]}});
  message["content"] = std::move(parts);
}

Json message_of(const Json& message, const std::string& where) {
  Fields f(message, where);
  Json out = {{"role", f.needed("role")}, {"content", f.text("content").value_or("")}};
  if (const auto thoughts = f.text("thinking")) out["reasoning_content"] = *thoughts;
  if (const auto name = f.text("tool_name")) out["name"] = *name;
  copy(f, out, {"tool_call_id"});
  add_images(f, out);
  if (f.find("tool_calls") != nullptr) {
    const Json& calls = f.list("tool_calls");
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Fields call(calls[i], fmt::format("{}tool_calls[{}].", where, i));
      Fields about = call.inside("function");
      const Json* arguments = about.find("arguments");
      out["tool_calls"].push_back(
          {{"id", call.text("id").value_or(fmt::format("call_{}", i))},
           {"type", "function"},
           {"function",
            {{"name", about.needed("name")},
             {"arguments", arguments == nullptr ? "{}" : line(*arguments)}}}});
    }
  }
  f.end();
  return out;
}

class Ollama : public Format {
 public:
  Ollama(const Json& body, bool talk) : talk_(talk) {
    Fields f(body);
    copy(f, body_, {"model", "tools"});
    copy_extensions(f, body_);
    body_["stream"] = f.flag("stream", true);
    if (const Json* options = f.find("options")) add_options(*options, body_);
    if (const Json* format = f.find("format")) add_format(*format);
    if (const Json* think = f.find("think")) {
      if (think->is_string()) {
        body_["reasoning_effort"] = *think;
      } else {
        body_["enable_thinking"] = *think;
        hides_thoughts_ = *think == false;
      }
    }
    if (const Json* time = f.find("keep_alive")) unloads_ = is_no_time(*time);
    f.ignore({"truncate", "shift"});
    f.only("logprobs", false);
    f.only("top_logprobs", 0);
    f.only("template", "");
    if (talk_) {
      Json messages = Json::array();
      if (f.find("messages") != nullptr) {
        const Json& list = f.list("messages");
        for (std::size_t i = 0; i < list.size(); ++i) {
          messages.push_back(message_of(list[i], fmt::format("messages[{}].", i)));
        }
      }
      empty_ = messages.empty();
      body_["messages"] = std::move(messages);
    } else {
      const auto prompt = f.text("prompt"), system = f.text("system");
      empty_ = prompt.value_or("").empty();
      f.only("suffix", "");
      chat_ = !f.flag("raw", false);
      if (!chat_) f.only("images", Json::array());
      if (chat_) {
        Json messages = Json::array();
        if (system && !system->empty()) {
          messages.push_back({{"role", "system"}, {"content", *system}});
        }
        messages.push_back({{"role", "user"}, {"content", prompt.value_or("")}});
        add_images(f, messages.back());
        body_["messages"] = std::move(messages);
      } else {
        body_["prompt"] = prompt.value_or("");
      }
    }
    f.end();
  }

  /// Requests without a question load the model, or unload it: nothing is to be done.
  Json answer_without_model(const std::string& model) const override {
    if (!empty_) return nullptr;
    Json out = frame(model);
    say(out, {{"content", ""}});
    out["done"] = true;
    out["done_reason"] = unloads_ ? "unload" : "load";
    return out;
  }

  const char* stream_type() const override { return "application/x-ndjson"; }

  Json whole(const Json& answer, const Usage& usage) override {
    const Json& choice = answer["choices"][0];
    Json out = frame(answer["model"]);
    say(out, choice.contains("message") ? choice["message"] : Json{{"content", choice["text"]}});
    reason_ = choice["finish_reason"];
    add_end(out, usage);
    return out;
  }
  std::string chunk(const Json& chunk, const Usage&) override {
    const Json& choice = chunk["choices"][0];
    model_ = chunk["model"];
    if (!choice["finish_reason"].is_null()) reason_ = choice["finish_reason"];
    const Json delta =
        choice.contains("delta") ? choice["delta"] : Json{{"content", choice["text"]}};
    const bool thinks = delta.contains("reasoning_content") && !hides_thoughts_;
    if (delta.value("content", Json("")) == "" && !thinks && !delta.contains("tool_calls")) {
      return "";
    }
    Json out = frame(model_);
    say(out, delta);
    return line(out) + "\n";
  }
  std::string end(const Usage& usage) override {
    Json out = frame(model_);
    say(out, {{"content", ""}});
    add_end(out, usage);
    return line(out) + "\n";
  }
  std::string fail(const ApiError& error) override {
    return line(Format::error("/api/", error)) + "\n";
  }

 private:
  /// "json", or a schema.
  void add_format(const Json& format) {
    if (format == "") return;
    if (format == "json") {
      body_["response_format"] = {{"type", "json_object"}};
    } else if (format.is_object()) {
      body_["response_format"] = {{"type", "json_schema"},
                                  {"json_schema", {{"name", "format"}, {"schema", format}}}};
    } else {
      refuse("format", "format: {} is neither \"json\" nor a schema", shown(format));
    }
  }
  static Json frame(const Json& model) { return {{"model", model}, {"created_at", now()}}; }
  void say(Json& out, const Json& message) const {
    const Json text = message.value("content", Json());
    const Json content = text.is_string() ? text : Json("");
    Json& place = talk_ ? out["message"] : out;
    if (talk_) place["role"] = "assistant";
    place[talk_ ? "content" : "response"] = content;
    if (message.contains("reasoning_content") && !hides_thoughts_) {
      place["thinking"] = message["reasoning_content"];
    }
    for (const Json& call : message.value("tool_calls", Json::array())) {
      place["tool_calls"].push_back(
          {{"id", call["id"]},
           {"function", {{"name", call["function"]["name"]}, {"arguments", arguments_of(call)}}}});
    }
    out["done"] = false;
  }
  void add_end(Json& out, const Usage& usage) const {
    out["done"] = true;
    out["done_reason"] = reason_ == "length" ? "length" : "stop";
    out["total_duration"] = nanoseconds(usage.seconds);
    out["load_duration"] = 0;
    out["prompt_eval_count"] = usage.prompt;
    out["prompt_eval_duration"] = nanoseconds(usage.first_seconds);
    out["eval_count"] = usage.made;
    out["eval_duration"] = nanoseconds(usage.seconds - usage.first_seconds);
  }

  bool talk_;
  bool empty_ = false, unloads_ = false;
  bool hides_thoughts_ = false;  ///< of models that think though they are told not to
  Json model_;
  std::string reason_ = "stop";
};

}  // namespace

std::unique_ptr<Format> ollama_format(const Json& body, bool chat) {
  return std::make_unique<Ollama>(body, chat);
}

}  // namespace ballast::serve
