#include "text/answer/call_forms.h"

#include <algorithm>
#include <optional>

#include "ballast/error.h"
#include "formats/json_text.h"
#include "text/answer/call_literals.h"
#include "text/answer/call_tags.h"
#include "text/answer/parameters.h"

namespace ballast {

using namespace calls;

namespace {

/// Where the string that begins at text[at] ends, of valid JSON.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; text[at] != '"'; ++at) at += text[at] == '\\';
  return at + 1;
}

/// The text of an object's member, of valid JSON; the last of that name.
std::optional<std::string_view> member_text(std::string_view object, std::string_view name) {
  std::optional<std::string_view> found;
  int depth = 0;
  std::string_view key;
  std::size_t begin = 0;  // of a member's value; 0: none
  for (std::size_t at = 0; at < object.size(); ++at) {
    const char c = object[at];
    if (c == '"') {
      const std::size_t end = end_of_string(object, at);
      if (depth == 1 && begin == 0) key = object.substr(at + 1, end - at - 2);
      at = end - 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 1 && c == ':') {
      begin = at + 1;
    } else if (c == '}' || c == ']' || c == ',') {
      if (depth == 1 && begin > 0) {
        if (key == name) found = trimmed(object.substr(begin, at - begin));
        begin = 0;
      }
      depth -= c != ',';
    }
  }
  return found;
}

}  // namespace

const Function* CallForms::find(std::string_view name) const {
  const auto at = std::ranges::find(functions_, name, &Function::name);
  return at == functions_.end() ? nullptr : &*at;
}

bool CallForms::add_json(std::string_view json, std::vector<ToolCall>& calls) const {
  Json call;
  try {
    call = parse_json_text<Json>(json, "a call");
  } catch (const Error&) {
    return false;
  }
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
  const std::string name = call["name"];
  if (find(name) == nullptr) return false;
  const char* field = call.contains("arguments") ? "arguments" : "parameters";
  const Json arguments = call.contains(field) ? call[field] : Json();
  std::string text = "{}";
  if (arguments.is_string()) {
    const auto& own = arguments.get_ref<const std::string&>();
    if (!trimmed(own).empty()) text = own;
  } else if (arguments.is_object()) {
    // Not dumped again, which would round long numbers.
    text = member_text(json, field).value_or("{}");
  } else if (!arguments.is_null()) {
    return false;
  }
  const Json id = call.value("id", Json());
  calls.push_back({name, std::move(text), id.is_string() ? id.get<std::string>() : ""});
  return true;
}

bool CallForms::add_xml(std::string_view xml, std::vector<ToolCall>& calls) const {
  xml.remove_prefix(kFunction.size());
  const std::size_t name_end = xml.find('>');
  if (name_end == std::string_view::npos || !xml.ends_with(kFunctionEnd)) return false;
  const Function* function = find(trimmed(xml.substr(0, name_end)));
  if (function == nullptr) return false;
  xml = xml.substr(name_end + 1, xml.size() - name_end - 1 - kFunctionEnd.size());
  std::string arguments = "{";
  while (!(xml = trimmed(xml)).empty()) {
    const std::size_t key_end = xml.find('>');
    if (!xml.starts_with(kParameter) || key_end == std::string_view::npos) return false;
    const std::string key(xml.substr(kParameter.size(), key_end - kParameter.size()));
    // The last end before the next parameter, so that a value may hold one.
    const std::size_t next = xml.find(kParameter, key_end);
    const std::size_t end = xml.substr(0, next).rfind(kParameterEnd);
    if (end == std::string_view::npos || end < key_end) return false;
    std::string_view value = xml.substr(key_end + 1, end - key_end - 1);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    if (arguments.size() > 1) arguments += ",";
    arguments += Json(key).dump() + ":" + parameter_json(value, function->parameters, key);
    xml.remove_prefix(end + kParameterEnd.size());
  }
  calls.push_back({function->name, arguments + "}"});
  return true;
}

bool CallForms::add_array(std::string_view json, std::vector<ToolCall>& calls) const {
  try {
    if (!parse_json_text<Json>(json, "calls").is_array()) return false;
  } catch (const Error&) {
    return false;
  }
  std::vector<ToolCall> all;
  int depth = 0;
  std::size_t begin = 1;
  for (std::size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') at = end_of_string(json, at) - 1;
    depth += c == '{' || c == '[';
    depth -= c == '}' || c == ']';
    if (!(depth == 1 && c == ',') && !(depth == 0 && c == ']')) continue;
    if (!add_json(trimmed(json.substr(begin, at - begin)), all)) return false;
    begin = at + 1;
  }
  calls.insert(calls.end(), all.begin(), all.end());
  return true;
}

bool CallForms::may_be_code(std::string_view text) const {
  const auto begins = [&text](std::string_view mark) {  // as far as there is text
    return text.starts_with(mark) || mark.starts_with(text);
  };
  const bool list = text.starts_with('[');
  if (list) text = text.substr(std::min(text.find_first_not_of(kSpace, 1), text.size()));
  return std::ranges::any_of(functions_, [&](const Function& function) {
    const std::string& name = function.name;
    if (list) return begins(name + "(");
    return begins(name + "{") || begins(name + "[ARGS]") || begins(name + "[CALL_ID]") ||
           begins("call:" + name + "{");
  });
}

bool CallForms::may_be_bare(std::string_view text) const {
  return may_be_json(text) || may_be_code(text);
}

bool CallForms::add_code(std::string_view& text, std::vector<ToolCall>& calls) const {
  std::vector<ToolCall> all;
  LiteralReader reader(text);
  const auto one = [&] {
    const bool marked = reader.take("call:");
    const Function* function = find(reader.name());
    if (function == nullptr) return false;
    const bool list = !marked && reader.take("(");
    std::string id;
    if (!list && reader.take("[CALL_ID]")) id = reader.name();
    if (!list) reader.take("[ARGS]");
    if (!list && !reader.take("{")) return false;
    auto arguments = reader.arguments(list ? ')' : '}');
    if (arguments) all.push_back({function->name, std::move(*arguments), std::move(id)});
    return arguments.has_value();
  };
  const bool list = reader.take("[");
  bool whole = one();
  while (whole && list && reader.take(",")) whole = one();
  if (!whole || (list && !reader.take("]"))) return false;
  text = reader.rest();
  calls.insert(calls.end(), all.begin(), all.end());
  return true;
}

bool CallForms::add_marked(std::string_view text, std::vector<ToolCall>& calls,
                           std::string_view& rest) const {
  const std::size_t before = calls.size();
  for (rest = text; !trimmed(rest).empty(); rest = text) {
    const bool marked = take_marks(text, kMarkOpen);
    text = without_blanks(text);
    if (marked && !text.empty() && may_be_json(text)) {
      JsonEnd end;
      if (!end.find(text)) break;
      const std::string_view json = text.substr(0, end.at);
      if (json[0] == '{' ? !add_json(json, calls) : !add_array(json, calls)) break;
      text.remove_prefix(end.at);
    } else if (!may_be_code(text) || !add_code(text, calls)) {
      break;
    }
    take_marks(text, kMarkClose);
  }
  return calls.size() > before;
}

bool CallForms::add_pairs(std::string_view text, std::vector<ToolCall>& calls) const {
  const std::size_t name_end = std::min(text.find_first_of("\n<"), text.size());
  const Function* function = find(trimmed(text.substr(0, name_end)));
  if (function == nullptr) return false;
  std::string arguments = "{";
  text.remove_prefix(name_end);
  const auto take = [&](std::string_view open, std::string_view close) {
    std::optional<std::string_view> out;
    text = trimmed(text);
    const std::size_t end = text.find(close);
    if (text.starts_with(open) && end != std::string_view::npos) {
      out = text.substr(open.size(), end - open.size());
      text.remove_prefix(end + close.size());
    }
    return out;
  };
  while (!trimmed(text).empty()) {
    const auto key = take("<arg_key>", "</arg_key>"), value = take("<arg_value>", "</arg_value>");
    if (!key || !value) return false;
    if (arguments.size() > 1) arguments += ",";
    const std::string name(trimmed(*key));
    arguments += Json(name).dump() + ":" + parameter_json(*value, function->parameters, name);
  }
  calls.push_back({function->name, arguments + "}"});
  return true;
}

bool CallForms::add_call(std::string_view text, std::vector<ToolCall>& calls) const {
  text = trimmed(text);
  if (text.starts_with('{')) return add_json(text, calls);
  if (text.starts_with('[')) return add_array(text, calls);
  return text.starts_with(kFunction) ? add_xml(text, calls) : add_pairs(text, calls);
}

}  // namespace ballast
