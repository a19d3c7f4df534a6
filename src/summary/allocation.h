// One budget in bytes for the entries of all layers and heads: which entry is kept, and at which
// precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ballast/attention.h"
#include "ballast/storage.h"

namespace ballast {

/// A precision that an entry may be kept at.
struct Tier {
  StorageType key_type = StorageType::int8;
  StorageType value_type = StorageType::int8;
  std::size_t bytes = 0;  ///< of an entry: both rows, and its position
  /// Expected squared error of a row over its squared length; 1 for an entry that is not kept.
  double distortion = 1;
};

/// The tiers of a text such as "int8+q4+q4/q2+q2" (key type / value type), for rows of these
/// dimensions, from most bytes to least. Those that no budget would use (above the lower convex
/// hull of bytes and distortion) are left out. `more`: bytes of an entry beside rows and position.
/// Throws Error on unknown types.
std::vector<Tier> parse_tiers(std::string_view text, std::size_t key_dim, std::size_t value_dim,
                              std::size_t more = 0);

/// The entries of one KV head among which the budget is divided.
struct HeadScores {
  std::span<const float> scores;        ///< finite, from 0
  std::span<const Position> positions;  ///< ascending; empty: 0, 1, 2, ...
  /// Entries at the start and at the end that are kept in any case, with the largest score of all.
  std::size_t first = 0;
  std::size_t last = 0;
  /// The best tier that each entry may get: what was rounded once gains nothing from more bytes.
  /// Empty: the first tier, for all.
  std::span<const std::uint8_t> best = {};
};

/// What becomes of each entry of a head: an index into the tiers, or tiers.size() for an entry that
/// is evicted.
using HeadTiers = std::vector<std::uint8_t>;

struct Allocation {
  std::vector<HeadTiers> heads;
  std::size_t bytes = 0;  ///< of all entries kept, never above the budget
};

/// Minimises the sum over all entries of score times distortion, with bytes within `budget`: one
/// threshold on the score for each tier, found by bisection of the Lagrange multiplier, then
/// upgrades by falling score · (fall of distortion) / (rise of bytes) while one fits. Among equal
/// scores the entry of the lower position, layer and head comes first. No entry gets a better tier
/// than HeadScores::best. `heads` are in the order of
/// layers and heads. Throws Error that names the minimum if the budget does not hold the protected
/// entries at the cheapest tier. `fixed`: bytes of the budget that go elsewhere.
Allocation allocate(std::span<const HeadScores> heads, std::span<const Tier> tiers,
                    std::size_t budget, std::size_t fixed = 0);

}  // namespace ballast
