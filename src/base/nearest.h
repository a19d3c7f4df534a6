// "Did you mean …?"
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// The fewest characters to insert, delete, replace or swap with a neighbour.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({last[j] + 1, next[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        next[j] = std::min(next[j], before[j - 2] + 1);
      }
    }
    before = last;
    last.swap(next);
  }
  return last[b.size()];
}

/// The one of `known` that `name` resembles most, or empty: at most a third of it may differ, or
/// `name` is how it begins.
template <typename Names>
std::string nearest(std::string_view name, const Names& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(1, name.size() / 3) + 1;
  constexpr std::size_t kLongest = 100;  // of a name that someone types
  if (name.size() < 2 || name.size() > kLongest) return best;
  for (const auto& candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  if (!best.empty() || name.size() < 4) return best;
  for (const auto& candidate : known) {
    if (std::string_view(candidate).starts_with(name)) return std::string(candidate);
  }
  return best;
}

/// "; did you mean BEST?" or empty.
template <typename Names>
std::string did_you_mean(std::string_view name, const Names& known) {
  const std::string best = nearest(name, known);
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace ballast
