#include "text/answer/tool_calls.h"

#include <algorithm>
#include <optional>
#include <span>

#include "ballast/error.h"
#include "formats/json_text.h"
#include "text/answer/call_literals.h"
#include "text/answer/parameters.h"

namespace ballast {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>";

/// Before and behind calls of other forms.
constexpr std::string_view kMarkOpen[] = {"<|tool_call_start|>", "<|tool_call>",
                                          "<start_function_call>", "[TOOL_CALLS]"};
constexpr std::string_view kMarkClose[] = {"<|tool_call_end|>", "<tool_call|>",
                                           "<end_function_call>"};
constexpr std::size_t kLongestMark = 19;

/// Characters before the spaces at the end of text[0, end).
std::size_t without_spaces(std::string_view text, std::size_t end) {
  const std::size_t last = text.substr(0, end).find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

std::string_view trimmed(std::string_view text) {
  text = text.substr(0, without_spaces(text, text.size()));
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

/// Characters at the end of `text` that `tag` begins with, short of all of it.
std::size_t begun_tag(std::string_view text, std::string_view tag) {
  std::size_t length = std::min(text.size(), tag.size() - 1);
  while (!text.ends_with(tag.substr(0, length))) --length;
  return length;
}

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

/// Whether an answer may be an object, or an array of objects.
bool may_be_json(std::string_view text) {
  if (!text.starts_with('[')) return text.starts_with('{');
  const std::size_t first = text.find_first_not_of(kSpace, 1);
  return first == std::string_view::npos || text[first] == '{';
}

/// Whether a character may stand in JSON outside strings.
bool structural(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("{}[],:+-. \t\r\n").find(c) != std::string_view::npos;
}

/// What opens a call, and where.
struct Opening {
  std::size_t at = std::string_view::npos;
  std::string_view tag;
};
Opening find_opening(std::string_view text, std::size_t from) {
  for (std::size_t at = from; (at = text.find_first_of("<[", at)) != std::string_view::npos; ++at) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(kOpen)) return {at, kOpen};
    if (rest.starts_with(kFunction)) return {at, kFunction};
    for (const std::string_view mark : kMarkOpen) {
      if (rest.starts_with(mark)) return {at, mark};
    }
  }
  return {};
}
/// Characters at the end of `text` that an opening begins with.
std::size_t begun_opening(std::string_view text) {
  std::size_t most = std::max(begun_tag(text, kOpen), begun_tag(text, kFunction));
  for (const std::string_view mark : kMarkOpen) most = std::max(most, begun_tag(text, mark));
  return most;
}

/// The text without the few blanks that it begins with: many are no part of a call.
std::string_view without_blanks(std::string_view text) {
  constexpr std::size_t kMost = 64;
  const std::size_t first = text.substr(0, kMost).find_first_not_of(kSpace);
  if (first != std::string_view::npos) return text.substr(first);
  return text.size() < kMost ? text.substr(text.size()) : text;
}

/// Removes the few marks that a text begins with; whether there was one.
bool take_marks(std::string_view& text, std::span<const std::string_view> marks) {
  constexpr int kMost = 4;
  int taken = 0;
  for (bool more = true; more && taken < kMost;) {
    const std::string_view rest = without_blanks(text);
    more = false;
    for (const std::string_view mark : marks) {
      if (!rest.starts_with(mark)) continue;
      text = rest.substr(mark.size());
      ++taken;
      more = true;
      break;
    }
  }
  return taken > 0;
}

}  // namespace

const Function* ToolCallReader::find(std::string_view name) const {
  const auto at = std::ranges::find(functions_, name, &Function::name);
  return at == functions_.end() ? nullptr : &*at;
}

bool ToolCallReader::add_json(std::string_view json, std::vector<ToolCall>& calls) const {
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

bool ToolCallReader::add_xml(std::string_view xml, std::vector<ToolCall>& calls) const {
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

bool ToolCallReader::add_array(std::string_view json, std::vector<ToolCall>& calls) const {
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

bool ToolCallReader::may_be_code(std::string_view text) const {
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

bool ToolCallReader::may_be_bare(std::string_view text) const {
  return may_be_json(text) || may_be_code(text);
}

bool ToolCallReader::add_code(std::string_view& text, std::vector<ToolCall>& calls) const {
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

bool ToolCallReader::add_marked(std::string_view text, std::vector<ToolCall>& calls,
                                std::string_view& rest) const {
  const std::size_t before = calls.size();
  for (rest = text; !trimmed(rest).empty(); rest = text) {
    const bool marked = take_marks(text, kMarkOpen);
    text = without_blanks(text);
    if (marked && !text.empty() && may_be_json(text)) {
      Body body;
      if (!ends_json(text, body)) break;
      const std::string_view json = text.substr(0, body.at);
      if (json[0] == '{' ? !add_json(json, calls) : !add_array(json, calls)) break;
      text.remove_prefix(body.at);
    } else if (!may_be_code(text) || !add_code(text, calls)) {
      break;
    }
    take_marks(text, kMarkClose);
  }
  return calls.size() > before;
}

bool ToolCallReader::add_pairs(std::string_view text, std::vector<ToolCall>& calls) const {
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

bool ToolCallReader::add_call(std::string_view text, std::vector<ToolCall>& calls) const {
  text = trimmed(text);
  if (text.starts_with('{')) return add_json(text, calls);
  if (text.starts_with('[')) return add_array(text, calls);
  return text.starts_with(kFunction) ? add_xml(text, calls) : add_pairs(text, calls);
}

// A text of many tags takes time in proportion: a scan that another tag does not end sees each tag
// in a string, and the scans that begin there, outside of strings, do not see the next so.
ToolCallReader::Closed ToolCallReader::find_close(std::string_view text, Body& body,
                                                  std::size_t& closed) {
  using Kind = Body::Kind;
  if (body.kind == Kind::unknown) {
    body.at = text.find_first_not_of(kSpace, body.at);
    if (body.at == std::string_view::npos) {
      body.at = text.size();
      return Closed::not_yet;
    }
    const std::string_view rest = text.substr(body.at);
    if (rest[0] == '{') {
      body.kind = Kind::json;
    } else if (rest.starts_with(kFunction)) {
      body.kind = Kind::xml;
    } else if (kFunction.starts_with(rest)) {
      return Closed::not_yet;
    } else {
      body.kind = Kind::other;
    }
  }
  while (body.at < text.size()) {
    const std::string_view rest = text.substr(body.at);
    const char c = rest[0];
    if (c == '<' && rest.size() < kClose.size() &&
        (kClose.starts_with(rest) || kOpen.starts_with(rest))) {
      return Closed::not_yet;
    }
    if (c == '<' && rest.starts_with(kClose)) {
      if (body.first == std::string_view::npos) body.first = body.at;
      const std::string_view before = text.substr(0, without_spaces(text, body.at));
      const bool closes = body.kind == Kind::json  ? !body.in_string
                          : body.kind == Kind::xml ? before.ends_with(kFunctionEnd)
                                                   : true;
      if (closes) {
        closed = body.at;
        return Closed::yes;
      }
    } else if (body.kind == Kind::xml && rest.starts_with(kOpen)) {
      body.kind = Kind::other;
    } else if (body.kind == Kind::json && body.in_string) {
      if (!body.escaped && c == '"') body.in_string = false;
      if (static_cast<unsigned char>(c) < 0x20) body.kind = Kind::other;
      body.escaped = !body.escaped && c == '\\';
    } else if (body.kind == Kind::json) {
      if (c == '"') {
        body.in_string = true;
      } else if (!structural(c)) {
        body.kind = Kind::other;
      }
    }
    // What is no call ends with the first tag that closes one.
    if (body.kind == Kind::other && body.first != std::string_view::npos) return Closed::never;
    ++body.at;
  }
  return Closed::not_yet;
}

ToolCallReader::Closed ToolCallReader::find_function_end(std::string_view text, Body& body,
                                                         std::size_t& closed) const {
  if (body.at == 0) {
    const std::size_t end = text.find_first_of("<>\n", kFunction.size());
    const std::string_view name =
        trimmed(text.substr(kFunction.size()).substr(0, end - kFunction.size()));
    if (end == std::string_view::npos) {
      const bool begun = std::ranges::any_of(functions_, [&](const Function& one) {
        return one.name.starts_with(name) && text.size() < kFunction.size() + one.name.size() + 64;
      });
      return begun ? Closed::not_yet : Closed::never;
    }
    if (text[end] != '>' || find(name) == nullptr) return Closed::never;
    body.at = end + 1;
  }
  bool& within = body.in_string;  // a parameter
  for (; body.at < text.size(); ++body.at) {
    const std::string_view rest = text.substr(body.at);
    if (rest[0] == '<') {
      for (const std::string_view tag : {kParameter, kParameterEnd, kFunctionEnd}) {
        if (rest.size() < tag.size() && tag.starts_with(rest)) return Closed::not_yet;
      }
    }
    if (rest.starts_with(kParameterEnd)) {
      if (!within && body.first == std::string::npos) return Closed::never;
      within = false;
      body.first = body.at;
      body.at += kParameterEnd.size() - 1;
    } else if (!within && rest.starts_with(kParameter)) {
      within = true;
    } else if (!within && rest.starts_with(kFunctionEnd)) {
      closed = body.at + kFunctionEnd.size();
      return Closed::yes;
    } else if (!within && kSpace.find(rest[0]) == std::string_view::npos) {
      if (body.first == std::string::npos) return Closed::never;
      within = true;  // the end was part of a value
    }
  }
  return Closed::not_yet;
}

bool ToolCallReader::ends_json(std::string_view text, Body& body) {
  for (; body.at < text.size(); ++body.at) {
    const char c = text[body.at];
    if (body.in_string) {
      if (!body.escaped && c == '"') body.in_string = false;
      body.escaped = !body.escaped && c == '\\';
    } else if (c == '"') {
      body.in_string = true;
    } else if (c == '{' || c == '[') {
      ++body.depth;
    } else if ((c == '}' || c == ']') && --body.depth == 0) {
      ++body.at;
      return true;
    }
  }
  return false;
}

bool ToolCallReader::goes_on(std::string_view text, Body& body) {
  if (!may_be_json(text)) return false;
  if (body.first == std::string::npos) {
    if (!ends_json(text, body)) return false;
    body.first = body.at;
  }
  body.at = std::min(text.find_first_not_of(kSpace, body.at), text.size());
  return body.at < text.size();
}

std::string ToolCallReader::push(std::string_view piece, std::vector<ToolCall>& calls) {
  held_ += piece;
  return read(calls, false);
}

std::string ToolCallReader::read(std::vector<ToolCall>& calls, bool ends) {
  std::string out;
  std::string_view rest(held_);
  // What was looked at once is not looked at again while it is held.
  std::size_t spaces = std::exchange(spaces_, 0);
  Body body = std::exchange(body_, {});
  const auto skip = [&](std::size_t count) {
    rest.remove_prefix(count);
    spaces = 0;
    body = {};
  };
  const auto let_through = [&](std::size_t count) {
    out += rest.substr(0, count);
    said_ = true;
    skip(count);
  };
  const auto hold = [&] {
    held_.erase(0, held_.size() - rest.size());
    spaces_ = spaces;
    body_ = body;
    return std::move(out);
  };
  while (true) {
    spaces = std::min(rest.find_first_not_of(kSpace, spaces), rest.size());
    const std::string_view next = rest.substr(spaces);
    if (next.empty()) return hold();
    if (spaces > 0 && called_ && !said_) {  // they stand behind a call
      skip(spaces);
      continue;
    }
    if (bare_ && kClose.starts_with(next.substr(0, kClose.size()))) {
      if (next.size() < kClose.size()) return hold();
      skip(spaces + kClose.size());
      bare_ = false;
      continue;
    }
    bare_ = false;
    if (!begun_ && may_be_bare(next)) {
      if (!goes_on(next, body)) return hold();
      begun_ = true;
      let_through(spaces + body.first);
      continue;
    }
    const Opening opening = find_opening(rest, spaces);
    if (opening.tag.empty()) {
      const std::size_t end = rest.size() - begun_opening(rest);
      const std::size_t text = end == spaces ? 0 : without_spaces(rest, end);
      begun_ = begun_ || text > 0;
      if (text > 0) let_through(text);
      return hold();
    }
    begun_ = true;
    if (opening.at > spaces) {
      let_through(without_spaces(rest, opening.at));
      continue;
    }
    std::size_t close = 0;
    if (opening.tag == kFunction) {
      const Closed closed = find_function_end(next, body, close);
      if (closed == Closed::yes && add_xml(next.substr(0, close), calls)) {
        called_ = bare_ = true;
        skip(spaces + close);
      } else if (closed == Closed::not_yet && !ends) {
        return hold();
      } else {
        let_through(closed == Closed::not_yet ? rest.size() : spaces + kFunction.size());
      }
      continue;
    }
    if (opening.tag != kOpen) {
      std::string_view marked = next;
      take_marks(marked, kMarkOpen);
      const std::size_t marks = spaces + next.size() - marked.size();
      marked = without_blanks(marked);
      const bool may_be_mark = std::ranges::any_of(
          kMarkOpen, [&](std::string_view mark) { return mark.starts_with(marked); });
      if (!may_be_bare(marked) && (!may_be_mark || ends)) {
        let_through(marks);
        continue;
      }
      std::size_t end = std::string_view::npos;
      for (const std::string_view mark : kMarkClose) {
        const std::size_t at = next.find(mark, body.at);
        if (at < next.size()) end = std::min(end, at + mark.size());
      }
      if (end == std::string_view::npos && !ends) {
        body.at = next.size() - std::min(next.size(), kLongestMark);
        return hold();
      }
      std::string_view after;
      if (add_marked(next.substr(0, end), calls, after)) {
        called_ = true;
        skip(static_cast<std::size_t>(after.data() - rest.data()));
      } else {
        let_through(marks);
      }
      continue;
    }
    const std::size_t begin = opening.at + kOpen.size();
    Closed closed = find_close(rest.substr(begin), body, close);
    if (closed == Closed::not_yet) {
      if (!ends || body.first == std::string::npos) return hold();
      closed = Closed::never;
    }
    if (closed == Closed::yes && add_call(rest.substr(begin, close), calls)) {
      called_ = true;
      skip(begin + close + kClose.size());
    } else {
      let_through(begin + body.first + kClose.size());
    }
  }
}

std::string ToolCallReader::finish(std::vector<ToolCall>& calls) {
  std::string out = read(calls, true);
  const std::size_t first = held_.find_first_not_of(kSpace);
  std::string_view rest(held_);
  if (first == std::string::npos) {
    if (called_) held_.clear();
  } else {
    rest.remove_prefix(first);
    const bool tag = rest.starts_with(kOpen);
    if (tag) rest.remove_prefix(kOpen.size());
    std::string_view after;
    if ((tag || may_be_json(rest)) && add_call(rest, calls)) {
      held_.clear();
    } else if (!tag && !begun_ && add_marked(rest, calls, after)) {
      held_ = std::string(trimmed(after));
    }
  }
  spaces_ = 0;
  body_ = {};
  return out + std::exchange(held_, {});
}

}  // namespace ballast
