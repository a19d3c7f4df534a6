#include "serve/requests/conversation_fields.h"

#include "ballast/error.h"
#include "formats/json_text.h"
#include "serve/grammar/json_schema.h"
#include "serve/http/api_error.h"

namespace ballast::serve {
namespace {

/// Bytes of the arguments of all calls in a conversation: they take forty times as much as JSON.
constexpr std::size_t kMostArguments = std::size_t{1} << 20;

/// The text of a part of a message: its words, or the place holder of its picture.
std::string text_of_part(Fields& part, Pictures& pictures) {
  const std::string type = part.text("type").value_or("");
  // Those of the API of responses are the same.
  if (type == "image_url" || type == "input_image") {
    part.ignore({"detail", "file_id"});
    const Json* url = part.find("image_url");
    if (url != nullptr && url->is_object() && url->contains("url")) url = &(*url)["url"];
    if (url == nullptr || !url->is_string()) {
      refuse(part.full("image_url"), "{}: a data URL is missing", part.full("image_url"));
    }
    return pictures.read(url->get<std::string>(), part.full("image_url"));
  }
  part.ignore({"annotations", "logprobs"});
  if (type == "text" || type == "input_text" || type == "output_text") return part.needed("text");
  if (type == "refusal") return part.needed("refusal");
  throw ApiError(
      400, "unsupported_parameter",
      fmt::format("{}: only parts of type \"text\" and \"image_url\" are supported, this is {}",
                  part.full("type"), shown(Json(type))),
      part.full("type"));
}

/// The texts of a message's content; only one that calls functions, or that says null, has none.
std::string content_of(Fields& message, bool may_be_missing, Pictures& pictures, CacheMarks& marks,
                       std::size_t number) {
  const Json* content = message.find("content");
  const std::string where = message.full("content");
  if (content == nullptr && may_be_missing) return "";
  if (content == nullptr) refuse(where, "{} is missing", where);
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    refuse(where, "{}: {} is neither a string nor an array of parts", where, shown(*content));
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], fmt::format("{}[{}].", where, i));
    text += text_of_part(part, pictures);
    marks.read(part, number, text.size());
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
    about.needed("name");
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

/// Fields of a message beside its role and content, as templates take them.
Json more_of(Fields& message, const std::string& role, std::size_t& room) {
  Json out = Json::object();
  if (role == "assistant") {
    const Json* calls = message.find("tool_calls");
    if (calls != nullptr && !calls->empty()) {
      out["tool_calls"] = calls_of(*calls, message.full("tool_calls"), room);
    }
    const auto thoughts = message.text("reasoning_content"), other = message.text("reasoning");
    if (thoughts || other) {  // templates call them by two names
      out["reasoning_content"] = out["thinking"] = thoughts.value_or(other.value_or(""));
    }
  } else {
    message.only("tool_calls", Json::array());
  }
  if (role == "tool") {
    if (const auto id = message.text("tool_call_id")) out["tool_call_id"] = *id;
  }
  if (const auto name = message.text("name")) out["name"] = *name;
  return out;
}

/// The member of a call that has its arguments, as the model was taught.
std::string arguments_name(const Tokenizer& tokenizer) {
  const bool llama =
      tokenizer.find("<tool_call>") == kNoToken && tokenizer.find("<|python_tag|>") != kNoToken;
  return llama ? "parameters" : "arguments";
}

/// A message as one of a model that knows no functions.
void write_out(ChatMessage& message, const std::string& arguments) {
  if (message.role == "tool") {
    message = {"user", "Result: " + message.content};
    return;
  }
  if (message.more.empty()) return;
  Json more = parse_json_text<Json>(message.more, "a message");
  for (const Json& call : more.value("tool_calls", Json::array())) {
    const Json& function = call["function"];
    message.content += message.content.empty() ? "" : "\n";
    message.content +=
        Json({{"name", function["name"]}, {arguments, function.value("arguments", Json::object())}})
            .dump();
  }
  more.erase("tool_calls");
  message.more = more.empty() ? "" : more.dump();
}

/// Whether the template takes functions.
bool takes_tools(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                 const ChatOptions& options) {
  try {
    ChatTemplate::of(tokenizer, true).format(messages, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return false;
  }
  return true;
}

}  // namespace

std::vector<ChatMessage> messages_of(Fields& request, Pictures& pictures, CacheMarks& marks) {
  const Json* list = request.find("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    refuse("messages", "messages: an array of at least one message is needed");
  }
  std::vector<ChatMessage> out;
  std::size_t room = kMostArguments;
  for (std::size_t i = 0; i < list->size(); ++i) {
    Fields message((*list)[i], fmt::format("messages[{}].", i));
    std::string role =
        message.one_of("role", {"system", "developer", "user", "assistant", "tool"}, "");
    if (role == "developer") role = "system";
    const Json more = more_of(message, role, room);
    const bool is_null = (*list)[i].contains("content") && (*list)[i]["content"].is_null();
    std::string content =
        content_of(message, is_null || more.contains("tool_calls"), pictures, marks, i);
    marks.read(message, i, content.size());
    const bool is_answer = role == "assistant" && i + 1 == list->size();
    for (const char* begun : {"prefix", "partial"}) {
      if (is_answer) message.flag(begun, true);  // which the last message says by its role
      if (!is_answer) message.only(begun, false);
    }
    message.only("function_call", nullptr);
    message.only("audio", nullptr);
    message.ignore({"refusal", "annotations", "id", "parsed", "reasoning_details",
                    "thinking_blocks", "provider_specific_fields"});
    message.end();
    out.push_back({role, std::move(content), more.empty() ? "" : more.dump()});
  }
  return out;
}

Tools::Tools(Fields& request, CacheMarks& marks) {
  choose(request);
  const Json* tools = request.find("tools");
  if (tools == nullptr) return;
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
    const std::string name = about.needed("name");
    const Json* parameters = about.find("parameters");
    if (!none_) functions_.push_back({name, parameters == nullptr ? Json() : *parameters});
  }
  if (!functions_.empty()) json_ = tools->dump();
}

void Tools::choose(Fields& request) {
  const Json* value = request.find("tool_choice");
  if (value == nullptr || *value == "auto") return;
  none_ = *value == "none";
  must_ = !none_;
  if (none_ || *value == "required" || *value == "any") return;
  if (!value->is_object() || value->value("type", Json()) != "function") {
    unsupported("tool_choice", *value,
                R"("auto", "none", "required", and {"type": "function", "function": {"name": …}})");
  }
  Fields choice(*value, "tool_choice.");
  choice.ignore({"type"});
  Fields about = choice.inside("function");
  choice.end();
  name_ = about.needed("name");
  about.end();
}

std::shared_ptr<const Grammar> Tools::calls(const Tokenizer& tokenizer) const {
  std::vector<CallSchema> calls;
  for (std::size_t i = 0; i < functions_.size(); ++i) {
    const Function& one = functions_[i];
    if (!name_.empty() && name_ != one.name) continue;
    calls.push_back({one.name, one.parameters, fmt::format("tools[{}].function.parameters", i)});
  }
  if (calls.empty()) {
    refuse("tool_choice", "tool_choice: {} is not among the functions of tools",
           name_.empty() ? "\"required\"" : shown(Json(name_)));
  }
  return compile_calls(calls, arguments_name(tokenizer));
}

void Tools::tell(const Tokenizer& tokenizer, std::vector<ChatMessage>& messages,
                 ChatOptions& options) const {
  if (takes_tools(tokenizer, messages, options)) return;
  options.tools.clear();
  const std::string arguments = arguments_name(tokenizer);
  const std::string how = fmt::format(
      "Call one of these functions. Answer with one JSON object: "
      "{{\"name\": NAME, \"{}\": OBJECT}}",
      arguments);
  std::string words = how;
  for (const Json& tool : parse_json_text<Json>(json_, "tools")) {
    const Json& function = tool["function"];
    if (name_.empty() || function["name"] == name_) words += "\n" + function.dump();
  }
  for (ChatMessage& message : messages) write_out(message, arguments);
  std::vector<ChatMessage> told = messages;
  if (told[0].role == "system") {
    told[0].content += "\n\n" + words;
  } else {
    told.insert(told.begin(), {"system", words});
  }
  try {
    if (ChatTemplate::of(tokenizer).format(told, options).find(how) != std::string::npos) {
      messages = std::move(told);
      return;
    }
  } catch (const Error&) {  // it refuses a system's text
  }
  const auto user = std::ranges::find(messages, "user", &ChatMessage::role);
  if (user != messages.end()) user->content.insert(0, words + "\n\n");
}

}  // namespace ballast::serve
