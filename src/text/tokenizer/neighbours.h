// Which characters, or bytes, stand side by side in any piece of a vocabulary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ballast {

/// Between two that never do, a text may be cut: no piece, and so no merge, crosses there.
class Neighbours {
 public:
  void add(std::uint32_t left, std::uint32_t right) { pairs_.push_back(key(left, right)); }
  /// After the last add(), before contains().
  void finish() {
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
    pairs_.shrink_to_fit();
  }
  bool contains(std::uint32_t left, std::uint32_t right) const {
    return std::binary_search(pairs_.begin(), pairs_.end(), key(left, right));
  }

 private:
  static std::uint64_t key(std::uint64_t left, std::uint64_t right) { return left << 32 | right; }

  std::vector<std::uint64_t> pairs_;  ///< sorted
};

}  // namespace ballast
