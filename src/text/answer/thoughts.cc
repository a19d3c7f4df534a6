#include "text/answer/thoughts.h"

#include <algorithm>
#include <utility>

namespace ballast {
namespace {

constexpr std::string_view kOpen = ThoughtReader::kMarks[0], kClose = ThoughtReader::kMarks[1],
                           kBlank = " \t\r\n";

std::size_t begun_tag(std::string_view text, std::string_view tag) {
  std::size_t length = std::min(text.size(), tag.size() - 1);
  while (!text.ends_with(tag.substr(0, length))) --length;
  return length;
}

}  // namespace

ThoughtReader::Parts ThoughtReader::push(std::string_view piece) {
  if (place_ == Place::answer) return {"", std::string(piece)};
  held_ += piece;
  return read(false);
}

ThoughtReader::Parts ThoughtReader::finish() { return read(true); }

ThoughtReader::Parts ThoughtReader::read(bool ends) {
  Parts out;
  if (place_ == Place::before || place_ == Place::opened) {
    const std::size_t first = std::min(held_.find_first_not_of(kBlank), held_.size());
    const std::string_view rest = std::string_view(held_).substr(first);
    const bool tag = rest.starts_with(kOpen);
    if (!tag && !ends && kOpen.starts_with(rest)) return out;
    if (!tag && place_ == Place::before) {
      place_ = Place::answer;
      return {"", std::exchange(held_, {})};
    }
    std::size_t begin = first + (tag ? kOpen.size() : 0);
    begin = std::min(held_.find_first_not_of(kBlank, begin), held_.size());
    if (keeps_) out.thoughts = held_.substr(0, begin);
    held_.erase(0, begin);
    if (held_.empty() && !ends) {
      place_ = tag ? Place::opened : place_;
      return out;
    }
    place_ = Place::within;
  }
  if (place_ == Place::within) {
    const std::size_t close = held_.find(kClose, blanks_);
    std::size_t end = close;
    if (close == std::string::npos) end = held_.size() - (ends ? 0 : begun_tag(held_, kClose));
    // Blanks may turn out to be the last.
    const std::string_view fresh = std::string_view(held_).substr(0, end).substr(blanks_);
    const std::size_t last = fresh.find_last_not_of(kBlank);
    std::size_t thought = last == std::string::npos ? 0 : blanks_ + last + 1;
    if (keeps_) thought = close == std::string::npos ? end : close + kClose.size();
    out.thoughts += held_.substr(0, thought);
    if (close == std::string::npos) {
      held_.erase(0, ends ? held_.size() : thought);
      blanks_ = ends ? 0 : end - thought;
      return out;
    }
    held_.erase(0, close + kClose.size());
    place_ = Place::after;
  }
  if (place_ == Place::after) {
    const std::size_t first = std::min(held_.find_first_not_of(kBlank), held_.size());
    if (keeps_) out.thoughts += held_.substr(0, first);
    if (first < held_.size()) {
      out.answer = held_.substr(first);
      place_ = Place::answer;
    }
    held_.clear();
  }
  return out;
}

}  // namespace ballast
