#include "text/answer/tool_calls.h"

#include <algorithm>

#include "text/answer/call_tags.h"

namespace ballast {

using namespace calls;

namespace {

constexpr std::size_t kLongestMark = 19;

/// Characters at the end of `text` that `tag` begins with, short of all of it.
std::size_t begun_tag(std::string_view text, std::string_view tag) {
  std::size_t length = std::min(text.size(), tag.size() - 1);
  while (!text.ends_with(tag.substr(0, length))) --length;
  return length;
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

}  // namespace

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
      const bool begun = std::ranges::any_of(forms_.functions(), [&](const Function& one) {
        return one.name.starts_with(name) && text.size() < kFunction.size() + one.name.size() + 64;
      });
      return begun ? Closed::not_yet : Closed::never;
    }
    if (text[end] != '>' || forms_.find(name) == nullptr) return Closed::never;
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

bool ToolCallReader::goes_on(std::string_view text, Body& body) {
  if (!may_be_json(text)) return false;
  if (body.first == std::string::npos) {
    if (!body.find(text)) return false;
    body.first = body.at;
  }
  body.at = std::min(text.find_first_not_of(kSpace, body.at), text.size());
  return body.at < text.size();
}

std::string ToolCallReader::push(std::string_view piece, std::vector<ToolCall>& calls) {
  held_ += piece;
  return read(calls, false);
}

/// How far the held text has been read, and what of it is certain not to be of a call.
struct ToolCallReader::Reading {
  std::string_view rest;
  std::size_t spaces;  ///< of rest: as many begin it
  Body body;           ///< of the call that begins behind them
  std::string out = {};

  void skip(std::size_t count) {
    rest.remove_prefix(count);
    spaces = 0;
    body = {};
  }
};

void ToolCallReader::let_through(Reading& r, std::size_t count) {
  r.out += r.rest.substr(0, count);
  said_ = true;
  r.skip(count);
}

std::string ToolCallReader::read(std::vector<ToolCall>& calls, bool ends) {
  // What was looked at once is not looked at again while it is held.
  Reading r{held_, std::exchange(spaces_, 0), std::exchange(body_, {})};
  while (step(r, calls, ends)) {
  }
  spaces_ = r.spaces;
  body_ = r.body;
  held_.erase(0, held_.size() - r.rest.size());
  return std::move(r.out);
}

bool ToolCallReader::step(Reading& r, std::vector<ToolCall>& calls, bool ends) {
  r.spaces = std::min(r.rest.find_first_not_of(kSpace, r.spaces), r.rest.size());
  const std::string_view next = r.rest.substr(r.spaces);
  if (next.empty()) return false;
  if (r.spaces > 0 && called_ && !said_) {  // they stand behind a call
    r.skip(r.spaces);
    return true;
  }
  if (bare_ && kClose.starts_with(next.substr(0, kClose.size()))) {
    if (next.size() < kClose.size()) return false;
    r.skip(r.spaces + kClose.size());
    bare_ = false;
    return true;
  }
  bare_ = false;
  if (!begun_ && forms_.may_be_bare(next)) {
    if (!goes_on(next, r.body)) return false;
    begun_ = true;
    let_through(r, r.spaces + r.body.first);
    return true;
  }
  const Opening opening = find_opening(r.rest, r.spaces);
  if (opening.tag.empty()) {
    const std::size_t end = r.rest.size() - begun_opening(r.rest);
    const std::size_t text = end == r.spaces ? 0 : without_spaces(r.rest, end);
    begun_ = begun_ || text > 0;
    if (text > 0) let_through(r, text);
    return false;
  }
  begun_ = true;
  if (opening.at > r.spaces) {
    let_through(r, without_spaces(r.rest, opening.at));
    return true;
  }
  return opening.tag == kFunction ? take_function(r, calls, ends)
         : opening.tag == kOpen   ? take_tagged(r, calls, ends)
                                  : take_marked(r, calls, ends);
}

bool ToolCallReader::take_function(Reading& r, std::vector<ToolCall>& calls, bool ends) {
  const std::string_view next = r.rest.substr(r.spaces);
  std::size_t close = 0;
  const Closed closed = find_function_end(next, r.body, close);
  if (closed == Closed::yes && forms_.add_xml(next.substr(0, close), calls)) {
    called_ = bare_ = true;
    r.skip(r.spaces + close);
  } else if (closed == Closed::not_yet && !ends) {
    return false;
  } else {
    let_through(r, closed == Closed::not_yet ? r.rest.size() : r.spaces + kFunction.size());
  }
  return true;
}

bool ToolCallReader::take_marked(Reading& r, std::vector<ToolCall>& calls, bool ends) {
  const std::string_view next = r.rest.substr(r.spaces);
  std::string_view marked = next;
  take_marks(marked, kMarkOpen);
  const std::size_t marks = r.spaces + next.size() - marked.size();
  marked = without_blanks(marked);
  const bool may_be_mark = std::ranges::any_of(
      kMarkOpen, [&](std::string_view mark) { return mark.starts_with(marked); });
  if (!forms_.may_be_bare(marked) && (!may_be_mark || ends)) {
    let_through(r, marks);
    return true;
  }
  std::size_t end = std::string_view::npos;
  for (const std::string_view mark : kMarkClose) {
    const std::size_t at = next.find(mark, r.body.at);
    if (at < next.size()) end = std::min(end, at + mark.size());
  }
  if (end == std::string_view::npos && !ends) {
    r.body.at = next.size() - std::min(next.size(), kLongestMark);
    return false;
  }
  std::string_view after;
  if (forms_.add_marked(next.substr(0, end), calls, after)) {
    called_ = true;
    r.skip(static_cast<std::size_t>(after.data() - r.rest.data()));
  } else {
    let_through(r, marks);
  }
  return true;
}

bool ToolCallReader::take_tagged(Reading& r, std::vector<ToolCall>& calls, bool ends) {
  const std::size_t begin = r.spaces + kOpen.size();
  std::size_t close = 0;
  Closed closed = find_close(r.rest.substr(begin), r.body, close);
  if (closed == Closed::not_yet) {
    if (!ends || r.body.first == std::string::npos) return false;
    closed = Closed::never;
  }
  if (closed == Closed::yes && forms_.add_call(r.rest.substr(begin, close), calls)) {
    called_ = true;
    r.skip(begin + close + kClose.size());
  } else {
    let_through(r, begin + r.body.first + kClose.size());
  }
  return true;
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
    if ((tag || may_be_json(rest)) && forms_.add_call(rest, calls)) {
      held_.clear();
    } else if (!tag && !begun_ && forms_.add_marked(rest, calls, after)) {
      held_ = std::string(trimmed(after));
    }
  }
  spaces_ = 0;
  body_ = {};
  return out + std::exchange(held_, {});
}

}  // namespace ballast
