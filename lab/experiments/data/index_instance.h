// The streams on which no algorithm can be small: BalanceKV's lower bound (Theorem 3.2, appendix
// C).
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/data/kv_source.h"

namespace ballast {

struct IndexOptions {
  std::size_t tokens = 4096;
  std::size_t dim = 16;
  double radius = 4;  ///< r, the length of keys and queries; r² at most dim in the theorem
  std::uint64_t seed = 0;
};

/// Alice's half of the INDEX problem. Bits are dealt at random into groups of `dim`; a group has
/// one key of ±r/√dim, and bit j of a group the value ±e_j. The stream holds the pairs of the bits
/// that are 1, half of all. The query of a token is the key of a random bit: a method that
/// remembers the stream's attention tells whether that bit was 1. Keys and signs carry no pattern
/// to compress.
class IndexInstance : public KvSource {
 public:
  using KvSource::read;

  /// Throws Error on sizes of 0 or out of range.
  explicit IndexInstance(const IndexOptions& options);

  void read(Part part, std::size_t layer, std::size_t head, std::size_t first,
            MutableMatrix out) const override;
  bool made_up() const override { return true; }

  /// The bit of a token: group · dim + place in the group.
  std::size_t bit(std::size_t token) const { return bits_[token]; }

 private:
  IndexOptions options_;
  std::vector<std::uint32_t> bits_;  ///< a permutation; the first `tokens` are 1
};

}  // namespace ballast
