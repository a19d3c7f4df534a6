// Byte-pair merging: repeatedly joins the best pair of neighbours, the leftmost of equals. A heap
// bounds it by n log n.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace ballast {

/// A run of bytes of the word; an empty one has been joined to its left neighbour.
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
  Token id = kNoToken;  ///< kNoToken: no piece is written so
  std::int32_t previous = -1;
  std::int32_t next = -1;
};

/// The merge of two neighbours; the smallest `order` comes first.
struct Merge {
  double order = 0.0;
  Token id = kNoToken;
};

/// Joins symbols in place. `lookup(left, right)` gives std::optional<Merge>.
template <typename Lookup>
void merge_symbols(std::vector<Symbol>& symbols, const Lookup& lookup) {
  struct Candidate {
    Merge merge;
    std::int32_t left;
    std::int32_t right;
    std::uint32_t length;
    bool operator<(const Candidate& other) const {  // the heap's top is the greatest
      return std::tie(other.merge.order, other.left) < std::tie(merge.order, left);
    }
  };
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) return;
    const Symbol& a = symbols[left];
    const Symbol& b = symbols[right];
    if (std::optional<Merge> merge = lookup(a, b)) {
      candidates.push({*merge, left, right, a.length + b.length});
    }
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  for (std::int32_t i = 1; i < count; ++i) consider(i - 1, i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    // Symbols only grow to the right, so an equal sum of lengths means that both are unchanged.
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) {
      continue;
    }
    left.length = best.length;
    left.id = best.merge.id;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
}

}  // namespace ballast
