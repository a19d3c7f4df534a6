// One budget in bytes for the entries of all layers and heads: which entry is kept, and at which
// precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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

/// Entries of one KV head among which the budget is divided: all of them, or a run of those.
struct ScoredRun {
  std::uint32_t head = 0;               ///< among those of all layers
  std::span<const float> scores;        ///< finite, from 0
  std::span<const Position> positions;  ///< ascending; empty: first_position and on
  Position first_position = 0;
  /// The best tier that an entry may get: what was rounded once gains nothing from more bytes.
  std::uint8_t best = 0;
  /// Entries before `first` and from `last` on are kept in any case, with the largest score of all,
  /// in types of 8 bits or more if a tier has such; so are those with a score above `floor`, with
  /// their own score and in any tier.
  Position first = 0;
  Position last = std::numeric_limits<Position>::max();
  float floor = std::numeric_limits<float>::infinity();
  /// Entries from `first` to before `reach` are evicted in any case.
  Position reach = 0;

  Position position(std::size_t i) const {
    return positions.empty() ? first_position + static_cast<Position>(i) : positions[i];
  }
  bool at_an_end(std::size_t i) const { return position(i) < first || position(i) >= last; }
  bool leaves(std::size_t i) const { return position(i) >= first && position(i) < reach; }
};

/// What becomes of each entry of a run: an index into the tiers, or tiers.size() for an entry that
/// is evicted.
using EntryTiers = std::vector<std::uint8_t>;

struct Allocation {
  std::vector<EntryTiers> runs;
  std::size_t bytes = 0;  ///< of all entries kept, never above the budget
};

/// The cheapest tier whose rows have 8 bits or more; the best one if none has.
std::size_t safe_tier(std::span<const Tier> tiers);

/// Minimises the sum over all entries of score times distortion, with bytes within `budget`. An
/// upgrade of an entry by one tier is worth score · (fall of distortion) / (rise of bytes); the
/// upgrades worth most are taken until one does not fit, then those that still do. Among equals the
/// entry of the lower position and head comes first. No entry gets a better tier than
/// ScoredRun::best. Takes a byte an entry, and 1 MiB: the last upgrade is found by radix
/// selection, without sorting. Throws Error that names the minimum if the budget does not hold what
/// is kept in any case at the cheapest tier. `fixed`: bytes of the budget that go elsewhere.
Allocation allocate(std::span<const ScoredRun> runs, std::span<const Tier> tiers,
                    std::size_t budget, std::size_t fixed = 0);

}  // namespace ballast
