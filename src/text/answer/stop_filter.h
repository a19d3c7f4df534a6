// Where a generated text ends because of its words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace ballast {

/// Holds text back until no stop string can begin in it. Time and memory are in proportion to the
/// text, however long and alike the stop strings are (Knuth, Morris and Pratt 1977).
class StopFilter {
 public:
  /// Throws Error if one of them is empty.
  explicit StopFilter(std::vector<std::string> stops) {
    for (std::string& stop : stops) {
      require(!stop.empty(), "an empty stop string");
      stops_.push_back({std::move(stop), {}, 0});
    }
  }

  /// Appends text and returns the part that is certain. Of stop strings in it the one that begins
  /// first counts; then nothing follows.
  std::string push(std::string_view text) {
    const std::size_t before = held_.size();
    held_ += text;
    if (found_) return {};
    std::size_t end = std::string::npos, longest = 0;
    for (Stop& stop : stops_) {
      for (std::size_t i = 0; i < text.size() && !stop.is_whole(); ++i) {
        stop.push(text[i]);
        if (!stop.is_whole() || before + i + 1 - stop.text.size() >= end) continue;
        end = before + i + 1 - stop.text.size();
        which_ = stop.text;
      }
      longest = std::max(longest, stop.matched);
    }
    found_ = end != std::string::npos;
    return take(found_ ? end : held_.size() - longest);
  }
  std::string flush() { return take(held_.size()); }
  bool found() const { return found_; }
  /// The stop string that was found; empty: none.
  const std::string& which() const { return which_; }

 private:
  struct Stop {
    std::string text;
    /// Of its beginnings of 1, 2, ... bytes: the longest shorter one that they end with. As many as
    /// have been matched, for the text of a request may be far longer.
    std::vector<std::size_t> borders;
    std::size_t matched = 0;  ///< bytes of its beginning at the end of what was pushed

    bool is_whole() const { return matched == text.size(); }
    void push(char c) {
      matched = extended(matched, c);
      if (matched <= borders.size()) return;
      borders.push_back(matched == 1 ? 0 : extended(borders.back(), c));
    }
    /// The longest beginning that `length` bytes of it and `c` end with.
    std::size_t extended(std::size_t length, char c) const {
      while (length > 0 && text[length] != c) length = borders[length - 1];
      return length + (text[length] == c ? 1 : 0);
    }
  };

  std::string take(std::size_t count) {
    std::string out = held_.substr(0, count);
    held_.erase(0, count);
    return out;
  }

  std::vector<Stop> stops_;
  std::string held_;
  bool found_ = false;
  std::string which_;
};

}  // namespace ballast
