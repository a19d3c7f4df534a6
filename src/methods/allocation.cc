#include "methods/allocation.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <optional>

#include "base/fail.h"

namespace ballast {
namespace {

/// Distortion of rows with normal elements, by type; measured for int8 and int4.
double distortion(StorageType type) {
  switch (type) {
    case StorageType::f32:
      return 0;
    case StorageType::f16:
      return 1e-7;
    case StorageType::bf16:
      return 1e-6;
    case StorageType::int8:
      return 1e-4;
    case StorageType::int4:
      return 0.0063;
    case StorageType::q4:
      return 0.0095;
    case StorageType::q3:
      return 0.0345;
    case StorageType::q2:
      return 0.1175;
  }
  return 1;
}

/// The order of upgrades, most worth first: by worth, position, head, and of one entry the cheaper
/// tier before the better one.
struct Rank {
  std::uint64_t worth = 0;  ///< bits of the worth, then those of the inverted position
  std::uint32_t place = 0;  ///< inverted head and tier
  bool operator==(const Rank&) const = default;
  auto operator<=>(const Rank&) const = default;
};

/// Ranks are found 16 bits at a time, from the first.
constexpr std::size_t kMostTiers = 16;
constexpr std::size_t kDigits = 6, kDigitBits = 16, kBins = std::size_t{1} << kDigitBits;

std::size_t digit(const Rank& rank, std::size_t i) {
  const std::uint64_t bits = i < 4 ? rank.worth >> (kDigitBits * (3 - i))
                                   : std::uint64_t{rank.place} >> (kDigitBits * (5 - i));
  return bits % kBins;
}

/// The rank with that digit and others of 0.
Rank place_digit(std::size_t bin, std::size_t i) {
  if (i < 4) return {std::uint64_t{bin} << (kDigitBits * (3 - i)), 0};
  return {0, static_cast<std::uint32_t>(bin << (kDigitBits * (5 - i)))};
}

/// The upgrades of all entries.
class Upgrades {
 public:
  Upgrades(std::span<const ScoredRun> runs, std::span<const Tier> tiers)
      : runs_(runs), tiers_(tiers.size()), safe_(safe_tier(tiers)) {
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      const bool cheapest = t + 1 == tiers.size();
      rises_.push_back(tiers[t].bytes - (cheapest ? 0 : tiers[t + 1].bytes));
      worths_.push_back(
          static_cast<float>(((cheapest ? 1.0 : tiers[t + 1].distortion) - tiers[t].distortion) /
                             static_cast<double>(rises_[t])));
    }
    for (const ScoredRun& run : runs) {
      for (float score : run.scores) most_ = std::max(most_, score);
    }
  }

  std::size_t rise(std::size_t t) const { return rises_[t]; }

  /// Calls use(run, entry, tier, rank) for every upgrade that is not taken in any case; of an
  /// entry, the cheapest tier first.
  template <typename Use>
  void each(Use use) const {
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const ScoredRun& run = runs_[r];
      for (std::size_t i = 0; i < run.scores.size(); ++i) {
        if (run.leaves(i)) continue;
        const auto at = static_cast<std::uint32_t>(run.position(i));
        const float score = run.at_an_end(i) ? most_ : run.scores[i];
        for (std::size_t t = first_choice(run, i); t-- > run.best;) {
          const std::uint64_t bits = std::bit_cast<std::uint32_t>(score * worths_[t]);
          const auto later = static_cast<std::uint32_t>(run.head * tiers_ + (tiers_ - 1 - t));
          use(r, i, t, Rank{bits << 32 | (at ^ 0xffffffffu), later ^ 0xffffffffu});
        }
      }
    }
  }

  /// Tiers from here on are given in any case: a safe one, the cheapest one, or none.
  std::size_t first_choice(const ScoredRun& run, std::size_t i) const {
    if (run.at_an_end(i)) return std::max<std::size_t>(safe_, run.best);
    return run.scores[i] > run.floor && !run.leaves(i) ? tiers_ - 1 : tiers_;
  }

 private:
  std::span<const ScoredRun> runs_;
  std::size_t tiers_, safe_;
  std::vector<std::size_t> rises_;  ///< bytes from the next worse tier to each
  std::vector<float> worths_;       ///< fall of distortion a byte
  float most_ = 0;
};

/// The rank of the first upgrade for which `left` bytes are too few once all before it are taken,
/// or nothing if all fit. `left` becomes what those leave.
std::optional<Rank> first_without_room(const Upgrades& upgrades, std::size_t& left) {
  struct Bin {
    std::size_t bytes = 0;
    std::size_t count = 0;
  };
  std::vector<Bin> bins(kBins);
  Rank found, mask;  // its first digits, and where they are
  const auto begins = [&](const Rank& rank) {
    return (rank.worth & mask.worth) == found.worth && (rank.place & mask.place) == found.place;
  };
  const auto with = [](const Rank& a, const Rank& b) {
    return Rank{a.worth | b.worth, a.place | b.place};
  };
  for (std::size_t d = 0; d < kDigits; ++d) {
    std::ranges::fill(bins, Bin{});
    upgrades.each([&](std::size_t, std::size_t, std::size_t t, const Rank& rank) {
      if (!begins(rank)) return;
      Bin& bin = bins[digit(rank, d)];
      bin.bytes += upgrades.rise(t);
      ++bin.count;
    });
    std::size_t at = kBins;
    while (at > 0 && bins[at - 1].bytes <= left) left -= bins[--at].bytes;
    if (at == 0) return std::nullopt;  // only at the first digit
    --at;
    found = with(found, place_digit(at, d));
    mask = with(mask, place_digit(kBins - 1, d));
    if (bins[at].count == 1) break;
  }
  Rank whole;
  upgrades.each([&](std::size_t, std::size_t, std::size_t, const Rank& rank) {
    if (begins(rank)) whole = rank;
  });
  return whole;
}

}  // namespace

std::vector<Tier> parse_tiers(std::string_view text, std::size_t key_dim, std::size_t value_dim,
                              std::size_t more) {
  std::vector<Tier> tiers;
  for (std::string_view rest = text;;) {
    require(tiers.size() < kMostTiers, "tiers={}...: more than {}", text.substr(0, 20), kMostTiers);
    const std::string_view one = rest.substr(0, rest.find('+'));
    const std::size_t slash = one.find('/');
    Tier tier;
    tier.key_type = parse_storage_type(one.substr(0, slash));
    tier.value_type =
        slash == std::string_view::npos ? tier.key_type : parse_storage_type(one.substr(slash + 1));
    tier.bytes = row_bytes(tier.key_type, key_dim) + row_bytes(tier.value_type, value_dim) +
                 sizeof(std::uint16_t) *
                     (row_scales(tier.key_type, key_dim) + row_scales(tier.value_type, value_dim)) +
                 sizeof(Position) + more;
    // An error in a key moves shares of attention, which costs more than one in a value.
    tier.distortion = (5 * distortion(tier.key_type) + 3 * distortion(tier.value_type)) / 8;
    tiers.push_back(tier);
    if (one.size() == rest.size()) break;
    rest.remove_prefix(one.size() + 1);
  }
  std::ranges::sort(tiers, [](const Tier& a, const Tier& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.distortion < b.distortion;
  });
  // The lower hull from (0, 1), the evicted entry, towards more bytes.
  std::vector<Tier> hull;
  for (const Tier& tier : tiers) {
    const auto slope = [](std::size_t bytes, double distortion, const Tier& to) {
      return (to.distortion - distortion) / static_cast<double>(to.bytes - bytes);
    };
    const auto last = [&](std::size_t back) {
      return back < hull.size() ? hull[hull.size() - 1 - back] : Tier{};
    };
    if (tier.distortion >= last(0).distortion) continue;
    if (!hull.empty() && tier.bytes == hull.back().bytes) continue;
    while (!hull.empty() && slope(last(1).bytes, last(1).distortion, tier) <=
                                slope(last(1).bytes, last(1).distortion, last(0))) {
      hull.pop_back();
    }
    hull.push_back(tier);
  }
  std::ranges::reverse(hull);
  return hull;
}

std::size_t safe_tier(std::span<const Tier> tiers) {
  for (std::size_t t = tiers.size(); t-- > 0;) {
    if (!is_low_bit(tiers[t].key_type) && !is_low_bit(tiers[t].value_type)) return t;
  }
  return 0;
}

Allocation allocate(std::span<const ScoredRun> runs, std::span<const Tier> tiers,
                    std::size_t budget, std::size_t fixed) {
  require(!tiers.empty(), "an allocation without tiers");
  const Upgrades upgrades(runs, tiers);
  Allocation out;
  for (const ScoredRun& run : runs) {
    EntryTiers& given = out.runs.emplace_back(run.scores.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      given[i] = static_cast<std::uint8_t>(upgrades.first_choice(run, i));
      if (given[i] < tiers.size()) out.bytes += tiers[given[i]].bytes;
    }
  }
  require(fixed + out.bytes <= budget,
          "{} bytes do not hold the first and last tokens of every head; give at least {}", budget,
          fixed + out.bytes);
  std::size_t left = budget - fixed - out.bytes;
  const std::size_t before = left;
  const std::optional<Rank> end = first_without_room(upgrades, left);
  const auto give = [&](std::size_t run, std::size_t entry, std::size_t tier) {
    out.runs[run][entry] = static_cast<std::uint8_t>(tier);
  };
  upgrades.each([&](std::size_t r, std::size_t i, std::size_t t, const Rank& rank) {
    if (!end || rank > *end) give(r, i, t);
  });
  // Of the others the best one that fits, again and again.
  while (end) {
    std::optional<Rank> best;
    std::size_t run = 0, entry = 0, tier = 0;
    upgrades.each([&](std::size_t r, std::size_t i, std::size_t t, const Rank& rank) {
      if (out.runs[r][i] != t + 1 || upgrades.rise(t) > left || (best && rank < *best)) return;
      best = rank;
      run = r;
      entry = i;
      tier = t;
    });
    if (!best) break;
    give(run, entry, tier);
    left -= upgrades.rise(tier);
  }
  out.bytes += before - left;
  return out;
}

}  // namespace ballast
