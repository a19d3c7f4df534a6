#include "serve/tool_calls.h"

#include <algorithm>

#include "ballast/error.h"
#include "formats/json_text.h"
#include "report/json.h"

namespace ballast::serve {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";

/// Characters before the spaces at the end of text[0, end).
std::size_t without_spaces(std::string_view text, std::size_t end) {
  const std::size_t last = text.substr(0, end).find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

/// Characters at the end of `text` that kOpen begins with.
std::size_t begun_tag(std::string_view text) {
  std::size_t length = std::min(text.size(), kOpen.size() - 1);
  while (!text.ends_with(kOpen.substr(0, length))) --length;
  return length;
}

}  // namespace

bool ToolCallReader::add_call(std::string_view json, std::vector<ToolCall>& calls) const {
  Json call;
  try {
    call = parse_json_text<Json>(json, "a call");
  } catch (const Error&) {
    return false;
  }
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
  const std::string name = call["name"];
  if (std::ranges::find(functions_, name) == functions_.end()) return false;
  Json arguments = Json::object();
  for (const char* field : {"parameters", "arguments"}) {
    if (call.contains(field)) arguments = call[field];
  }
  if (arguments.is_string()) {
    calls.push_back({name, arguments});
  } else if (arguments.is_object()) {
    calls.push_back({name, arguments.dump()});
  } else {
    return false;
  }
  return true;
}

std::string ToolCallReader::push(std::string_view piece, std::vector<ToolCall>& calls) {
  held_ += piece;
  std::string out;
  const auto let_through = [&](std::size_t count) {
    out += held_.substr(0, count);
    held_.erase(0, count);
  };
  while (true) {
    const std::size_t first = held_.find_first_not_of(kSpace);
    if (first == std::string::npos || (!begun_ && held_[first] == '{')) return out;
    const std::size_t tag = held_.find(kOpen);
    const std::size_t close = tag == std::string::npos ? tag : held_.find(kClose, tag);
    if (close == std::string::npos) {
      const std::size_t end = tag == std::string::npos ? held_.size() - begun_tag(held_) : tag;
      const std::size_t text = without_spaces(held_, end);
      begun_ = begun_ || text > 0 || tag != std::string::npos;
      let_through(text);
      return out;
    }
    begun_ = true;
    const std::size_t begin = tag + kOpen.size();
    if (add_call(std::string_view(held_).substr(begin, close - begin), calls)) {
      called_ = true;
      let_through(without_spaces(held_, tag));
      held_.erase(0, held_.find(kClose) + kClose.size());
    } else {
      let_through(close + kClose.size());
    }
  }
}

std::string ToolCallReader::finish(std::vector<ToolCall>& calls) {
  const std::size_t first = held_.find_first_not_of(kSpace);
  std::string_view rest(held_);
  if (first == std::string::npos) {
    if (called_) held_.clear();
  } else {
    rest.remove_prefix(first);
    if (rest.starts_with(kOpen)) rest.remove_prefix(kOpen.size());
    if (add_call(rest, calls)) held_.clear();
  }
  return std::exchange(held_, {});
}

}  // namespace ballast::serve
