#include "text/answer/channels.h"

#include <algorithm>
#include <utility>

namespace ballast {
namespace {

constexpr std::string_view kChannel = "<|channel|>", kMessage = "<|message|>",
                           kTo = "to=", kFunctions = "functions.";
constexpr std::string_view kMarks[] = {"<|end|>", "<|start|>", "<|call|>", "<|return|>", kChannel};

/// The word behind `key`; empty: there is none.
std::string_view word_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find_first_of(" \t\n<"));
}

/// Characters at the end of `text` that a mark begins with, short of all of it.
std::size_t begun_mark(std::string_view text) {
  std::size_t most = 0;
  for (const std::string_view mark : kMarks) {
    std::size_t length = std::min(text.size(), mark.size() - 1);
    while (!text.ends_with(mark.substr(0, length))) --length;
    most = std::max(most, length);
  }
  return most;
}

}  // namespace

bool writes_channels(const Tokenizer& tokenizer) {
  return std::ranges::all_of(std::initializer_list<std::string_view>{kChannel, kMessage},
                             [&](std::string_view mark) {
                               const Token token = tokenizer.find(mark);
                               return token != kNoToken && tokenizer.is_special(token);
                             });
}

std::string ChannelText::push(std::string_view piece) {
  held_ += piece;
  return read(false);
}

std::string ChannelText::finish() {
  std::string out = read(true);
  return out + close();
}

std::string ChannelText::open(std::string_view header) {
  std::string_view to = word_after(header, kTo);
  const std::string_view channel = word_after(header, kChannel);
  const bool call =
      to.starts_with(kFunctions) && to.find_first_of("\"\\") == std::string_view::npos;
  empty_ = true;
  if (!call && (channel == "analysis" || !to.empty())) {
    place_ = said_ ? Place::dropped : Place::thoughts;
    if (said_) return "";
    return std::exchange(thinks_, true) ? "\n\n" : "<think>\n";
  }
  std::string out = std::exchange(thinks_, false) ? "\n</think>\n\n" : "";
  said_ = true;
  place_ = call ? Place::call : Place::answer;
  if (!call) return out;
  to.remove_prefix(kFunctions.size());
  return out + "<tool_call>\n{\"name\": \"" + std::string(to) + "\", \"arguments\": ";
}

std::string ChannelText::close() {
  const bool call = place_ == Place::call;
  place_ = Place::header;
  if (!call) return "";
  return std::string(empty_ ? "{}" : "") + "}\n</tool_call>";
}

std::string ChannelText::read(bool ends) {
  std::string out;
  while (!held_.empty()) {
    if (place_ == Place::start) {
      const auto begins = [&](std::string_view with) {
        return held_.starts_with(with) || (!ends && with.starts_with(held_));
      };
      place_ = begins(kChannel) || begins(" to=") ? Place::header : Place::answer;
      said_ = place_ == Place::answer;
      if (place_ == Place::header && held_.size() < kChannel.size() && !ends) {
        place_ = Place::start;
        return out;
      }
    }
    if (place_ == Place::header) {
      const std::size_t end = held_.find(kMessage);
      if (end == std::string::npos) {
        if (ends) held_.clear();
        return out;
      }
      out += open(std::string_view(held_).substr(0, end));
      held_.erase(0, end + kMessage.size());
      continue;
    }
    std::size_t end = std::string::npos, mark = 0;
    for (const std::string_view one : kMarks) {
      const std::size_t at = held_.find(one);
      if (at < end) {
        end = at;
        mark = one == kChannel ? 0 : one.size();  // which belongs to the next header
      }
    }
    const bool closed = end != std::string::npos;
    if (!closed) end = held_.size() - (ends ? 0 : begun_mark(held_));
    if (place_ != Place::dropped) out.append(held_, 0, end);
    empty_ = empty_ && end == 0;
    held_.erase(0, end + mark);
    if (!closed) return out;
    out += close();
  }
  return out;
}

}  // namespace ballast
