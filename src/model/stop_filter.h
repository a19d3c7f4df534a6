// Where a generated text ends because of its words.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/fail.h"

namespace ballast {

/// Holds text back until no stop string can begin in it.
class StopFilter {
 public:
  /// Throws Error if one of them is empty.
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (const std::string& stop : stops_) require(!stop.empty(), "an empty stop string");
  }

  /// Appends text and returns the part that is certain.
  std::string push(std::string_view text) {
    held_ += text;
    std::size_t end = std::string::npos;
    for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
    found_ = end != std::string::npos;
    return take(found_ ? end : held_.size() - longest_beginning());
  }
  std::string flush() { return take(held_.size()); }
  bool found() const { return found_; }

 private:
  std::string take(std::size_t count) {
    std::string out = held_.substr(0, count);
    held_.erase(0, count);
    return out;
  }
  /// Length of the longest suffix of the text that is a prefix of a stop string.
  std::size_t longest_beginning() const {
    std::size_t longest = 0;
    for (const std::string& stop : stops_) {
      for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
        if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
      }
    }
    return longest;
  }

  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace ballast
