// Merges by the ids of the two pieces that they join.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/keyed_hash.h"
#include "text/tokenizer/merge.h"

namespace ballast {

/// 24 bytes a merge.
class MergeTable {
 public:
  /// For up to `most` merges, at most 2^32 - 1.
  explicit MergeTable(std::size_t most) : entries_(most + most / 2 + 1) {}

  /// The merge of the next rank, from 0. Of merges of the same two pieces the first counts.
  void add(Token left, Token right, Token joined) {
    Entry& entry = entries_[place(left, right)];
    if (entry.left == kNoToken) entry = {left, right, joined, count_};
    ++count_;
  }

  bool empty() const { return count_ == 0; }

  std::optional<Merge> find(Token left, Token right) const {
    if (left == kNoToken || right == kNoToken) return std::nullopt;
    const Entry& entry = entries_[place(left, right)];
    if (entry.left == kNoToken) return std::nullopt;
    return Merge{static_cast<double>(entry.rank), entry.joined};
  }

 private:
  struct Entry {
    Token left = kNoToken, right = kNoToken, joined = kNoToken;
    std::uint32_t rank = 0;
  };

  std::size_t place(Token left, Token right) const {
    const std::uint64_t both =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    std::size_t i = place_of(keyed_hash(both), entries_.size());
    while (entries_[i].left != kNoToken &&
           (entries_[i].left != left || entries_[i].right != right)) {
      if (++i == entries_.size()) i = 0;
    }
    return i;
  }

  std::vector<Entry> entries_;
  std::uint32_t count_ = 0;
};

}  // namespace ballast
