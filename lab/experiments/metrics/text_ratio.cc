// Ratcliff and Obershelp's similarity as Python's difflib computes it.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "experiments/metrics/metrics.h"
#include "experiments/metrics/python_text.h"

namespace ballast {
namespace {

class Matcher {
 public:
  Matcher(std::u32string a, std::u32string b) : a_(std::move(a)), b_(std::move(b)) {
    for (std::size_t j = 0; j < b_.size(); ++j) places_[b_[j]].push_back(j);
    if (b_.size() >= 200) {  // "popular" characters anchor no block
      std::erase_if(places_,
                    [&](const auto& item) { return item.second.size() > b_.size() / 100 + 1; });
    }
  }

  /// Characters in all matching blocks.
  std::size_t matching() const {
    std::vector<Range> open = {{0, a_.size(), 0, b_.size()}};
    std::size_t total = 0;
    while (!open.empty()) {
      const Range range = open.back();
      open.pop_back();
      const Block block = longest(range);
      if (block.size == 0) continue;
      total += block.size;
      open.push_back({range.a_begin, block.a, range.b_begin, block.b});
      open.push_back({block.a + block.size, range.a_end, block.b + block.size, range.b_end});
    }
    return total;
  }

 private:
  struct Range {
    std::size_t a_begin, a_end, b_begin, b_end;
  };
  struct Block {
    std::size_t a, b, size;
  };

  /// The longest common run of characters that are not popular, the earliest in a and then in b,
  /// made longer at both ends by whatever else agrees.
  Block longest(const Range& range) const {
    Block best{range.a_begin, range.b_begin, 0};
    // lengths[j]: of the common run that ends before a[i] and at b[j]
    std::unordered_map<std::size_t, std::size_t> lengths, next;
    for (std::size_t i = range.a_begin; i < range.a_end; ++i) {
      next.clear();
      const auto found = places_.find(a_[i]);
      if (found != places_.end()) {
        for (std::size_t j : found->second) {
          if (j < range.b_begin) continue;
          if (j >= range.b_end) break;
          const auto before = j == 0 ? lengths.end() : lengths.find(j - 1);
          const std::size_t size = (before == lengths.end() ? 0 : before->second) + 1;
          next[j] = size;
          if (size > best.size) best = {i + 1 - size, j + 1 - size, size};
        }
      }
      std::swap(lengths, next);
    }
    while (best.a > range.a_begin && best.b > range.b_begin && a_[best.a - 1] == b_[best.b - 1]) {
      --best.a, --best.b, ++best.size;
    }
    while (best.a + best.size < range.a_end && best.b + best.size < range.b_end &&
           a_[best.a + best.size] == b_[best.b + best.size]) {
      ++best.size;
    }
    return best;
  }

  std::u32string a_, b_;
  std::unordered_map<char32_t, std::vector<std::size_t>> places_;
};

}  // namespace

double text_ratio(std::string_view a, std::string_view b) {
  if (a == b) return 1.0;
  if (a.empty() || b.empty()) return 0.0;
  std::u32string first = to_code_points(a), second = to_code_points(b);
  const auto total = static_cast<double>(first.size() + second.size());
  const auto matching =
      static_cast<double>(Matcher(std::move(first), std::move(second)).matching());
  // Python rounds halves to the even number, as does the default rounding mode.
  return std::nearbyint(100.0 * (2.0 * matching / total)) / 100.0;
}

}  // namespace ballast
