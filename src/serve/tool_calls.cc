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
  std::string_view rest(held_);
  // What was looked at once is not looked at again while it is held.
  std::size_t spaces = std::exchange(spaces_, 0), open = std::exchange(open_, 0);
  const auto skip = [&](std::size_t count) {
    rest.remove_prefix(count);
    spaces = open = 0;
  };
  const auto let_through = [&](std::size_t count) {
    out += rest.substr(0, count);
    skip(count);
  };
  const auto hold = [&] {
    held_.erase(0, held_.size() - rest.size());
    spaces_ = spaces;
    open_ = open;
    return std::move(out);
  };
  while (true) {
    spaces = std::min(rest.find_first_not_of(kSpace, spaces), rest.size());
    if (spaces == rest.size() || (!begun_ && rest[spaces] == '{')) return hold();
    const std::size_t tag = rest.find(kOpen, spaces), begin = tag + kOpen.size();
    const std::size_t close =
        tag == std::string::npos ? tag : rest.find(kClose, std::max(begin, open));
    if (close == std::string::npos) {
      const std::size_t end = tag == std::string::npos ? rest.size() - begun_tag(rest) : tag;
      const std::size_t text = end == spaces ? 0 : without_spaces(rest, end);
      begun_ = begun_ || text > 0 || tag != std::string::npos;
      if (text > 0) {
        let_through(text);
      } else if (tag != std::string::npos) {
        open = std::max(begin, rest.size() - std::min(rest.size(), kClose.size() - 1));
      }
      return hold();
    }
    begun_ = true;
    if (add_call(rest.substr(begin, close - begin), calls)) {
      called_ = true;
      out += rest.substr(0, without_spaces(rest, tag));
      skip(close + kClose.size());
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
  spaces_ = open_ = 0;
  return std::exchange(held_, {});
}

}  // namespace ballast::serve
