#include "serve/requests/chat_prompt.h"

#include <algorithm>

#include "base/fail.h"
#include "formats/json_text.h"
#include "serve/http/api_error.h"
#include "serve/requests/limits.h"
#include "text/answer/answer_text.h"

namespace ballast::serve {
namespace {

/// Stands at the end of an answer that is gone on with; see kPlace.
constexpr std::string_view kEnd = "\uE0B0\uE0A3\uE0B0";

/// Anthropic's switch, which other APIs' clients send, too.
void parse_thinking(const Json& thinking, Json& out, Job& job) {
  Fields f(thinking, "thinking.");
  const std::string type = f.one_of("type", {"enabled", "disabled", "adaptive"}, "");
  job.thinking_budget = f.count("budget_tokens", 0, kMostTokens);
  f.ignore({"display"});
  f.end();
  if (type != "adaptive") out["enable_thinking"] = type == "enabled";
}

/// What an answer that has begun thinks; empty: nothing.
std::string thoughts_of(const ChatMessage& message) {
  if (message.more.empty()) return "";
  return parse_json_text<Json>(message.more, "a message").value("reasoning_content", "");
}

bool is_thinking(const ChatMessage& answer) {
  const std::string& text = answer.content;
  if (text.empty()) return !thoughts_of(answer).empty();
  return std::string_view(text)
             .substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()))
             .starts_with("<think>") &&
         text.find("</think>") == std::string::npos;
}

}  // namespace

std::string template_variables(Fields& f, Job& job) {
  Json out = Json::object();
  if (const auto effort = f.text("reasoning_effort")) {
    out["reasoning_effort"] = *effort;
    if (*effort == "none") out["enable_thinking"] = false;
  }
  if (const Json* thinking = f.find("thinking")) parse_thinking(*thinking, out, job);
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

ChatPrompt::ChatPrompt(const Tokenizer& tokenizer, std::vector<ChatMessage> messages,
                       ChatOptions options, bool goes_on)
    : tokenizer_(tokenizer),
      messages_(std::move(messages)),
      options_(std::move(options)),
      goes_on_(goes_on) {}

bool ChatPrompt::is_thinking() const { return goes_on_ && serve::is_thinking(messages_.back()); }

std::string ChatPrompt::text(std::vector<ChatMessage> messages, bool goes_on) const {
  const ChatTemplate form = ChatTemplate::of(tokenizer_, !options_.tools.empty());
  if (!goes_on) return form.format(messages, options_);
  ChatMessage last = messages.back();
  if (!last.content.empty()) {
    messages.back().content += kEnd;
    ChatOptions ended = options_;
    ended.add_generation_prompt = false;
    try {
      std::string text = form.format(messages, ended);
      const std::size_t end = text.rfind(kEnd);
      if (end != std::string::npos) return text.substr(0, end);
    } catch (const Error&) {  // some templates refuse to end with an answer
    }
  }
  messages.pop_back();
  std::string text = form.format(messages, options_);
  const std::size_t end = text.find_last_not_of(" \t\r\n") + 1;
  const bool open = std::string_view(text).substr(0, end).ends_with("<think>");
  const std::string thoughts = thoughts_of(last);
  if (last.content.empty() && !thoughts.empty() && !writes_channels(tokenizer_)) {
    return text + (open ? "" : "<think>\n") + thoughts;
  }
  if (last.content.empty()) return text;
  return text + (open && !serve::is_thinking(last) ? "\n</think>\n\n" : "") + last.content;
}

std::vector<Token> ChatPrompt::encode(std::vector<ChatMessage> messages, bool goes_on) const {
  try {
    return tokenizer_.encode(text(std::move(messages), goes_on),
                             {.add_special = false, .parse_special = true});
  } catch (const Error& error) {
    if (options_.tools.empty() || error.code() != ErrorCode::unsupported) throw;
    throw ApiError(400, "unsupported_parameter", fmt::format("tools: {}", error.what()), "tools");
  }
}

std::vector<Token> ChatPrompt::after(const Context& context) const {
  if (!options_.tools.empty()) {
    throw ApiError(400, "unsupported_parameter",
                   "tools: they stand before the text of a context, which is read already",
                   "tools");
  }
  std::string system;
  std::size_t first = 0;
  for (; first < messages_.size() && messages_[first].role == "system"; ++first) {
    if (messages_[first].content == context.info.system) continue;
    system += messages_[first].content + "\n\n";
  }
  if (first == messages_.size() || messages_[first].role != "user") {
    const std::size_t wrong = std::min(first, messages_.size() - 1);
    refuse(fmt::format("messages[{}].role", wrong),
           "messages[{}].role: the first message after a context, but for the system's, must be of "
           "the user",
           wrong);
  }
  std::vector<ChatMessage> asked(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                                 messages_.end());
  asked[0].content.insert(0, std::string(kPlace) + system);
  const std::string all = text(std::move(asked), goes_on_);
  const std::size_t at = all.find(kPlace);
  require(at != std::string::npos, "the model's chat template leaves out the first message");
  return encode_more(tokenizer_, all.substr(at + kPlace.size()), true);
}

std::vector<ChatMessage> ChatPrompt::first_messages() const {
  const auto asked = std::ranges::find(messages_, "user", &ChatMessage::role);
  if (asked == messages_.end()) return {};
  return {messages_.begin(), asked + 1};
}

std::vector<Token> ChatPrompt::first_turn() const {
  std::vector<ChatMessage> first = first_messages();
  if (first.empty() || first.size() == messages_.size()) return {};
  return encode(std::move(first));
}

std::vector<Token> ChatPrompt::other_first_turn() const {
  std::vector<ChatMessage> first = first_messages();
  if (first.empty()) return {};
  first.back().content = kPlace;
  return encode(std::move(first));
}

std::size_t ChatPrompt::tokens_before(const CacheMarks::Place& place,
                                      const std::vector<Token>& all) const {
  std::vector<ChatMessage> messages(
      messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(place.message + 1));
  std::string& text = messages.back().content;
  if (messages.size() == messages_.size() && place.bytes == text.size()) return all.size();
  text.resize(std::min(place.bytes, text.size()));
  text += kPlace;
  const std::vector<Token> cut = encode(std::move(messages));
  return static_cast<std::size_t>(std::ranges::mismatch(all, cut).in1 - all.begin());
}

}  // namespace ballast::serve
