#include "summary/allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

struct Candidate {
  float score;
  Position position;
  std::uint32_t head;
  std::uint32_t entry;  ///< of the head
};

/// Candidates that share the best tier they may get, by falling score, protected ones first. An
/// entry's level is its tier's index; evicted entries have the level after the last tier. Levels
/// rise along the order, so the number of entries at each level or a better one describes them all.
struct Order {
  std::vector<Candidate> ranked;
  std::size_t best = 0;  ///< level of the best tier
  std::size_t protected_count = 0;
  std::vector<std::size_t> ends;  ///< ends[t]: entries at level t or a better one

  float score(std::size_t rank) const { return ranked[rank].score; }
  /// Entries whose score is above the threshold.
  std::size_t above(double threshold) const {
    const auto it = std::partition_point(ranked.begin(), ranked.end(), [&](const Candidate& c) {
      return static_cast<double>(c.score) > threshold;
    });
    return static_cast<std::size_t>(it - ranked.begin());
  }
};

bool is_kept(const HeadScores& head, std::size_t i) {
  return i < head.first || i + head.last >= head.scores.size();
}

/// An order for each best tier that occurs.
std::vector<Order> orders_of(std::span<const HeadScores> heads, std::size_t tiers) {
  std::vector<std::size_t> counts(tiers, 0);
  float most = 0;
  for (const HeadScores& head : heads) {
    for (std::size_t i = 0; i < head.scores.size(); ++i) {
      ++counts[head.best.empty() ? 0 : head.best[i]];
      most = std::max(most, head.scores[i]);
    }
  }
  std::vector<Order> orders;
  for (std::size_t best = 0; best < tiers; ++best) {
    if (counts[best] == 0) continue;
    Order& order = orders.emplace_back();
    order.best = best;
    order.ranked.reserve(counts[best]);
    for (const bool kept : {true, false}) {
      for (std::uint32_t h = 0; h < heads.size(); ++h) {
        const HeadScores& head = heads[h];
        for (std::uint32_t i = 0; i < head.scores.size(); ++i) {
          if ((head.best.empty() ? 0 : head.best[i]) != best || is_kept(head, i) != kept) continue;
          const Position at = head.positions.empty() ? static_cast<Position>(i) : head.positions[i];
          order.ranked.push_back({kept ? most : head.scores[i], at, h, i});
        }
      }
      if (kept) order.protected_count = order.ranked.size();
    }
    const auto before = [](const Candidate& a, const Candidate& b) {
      if (a.score != b.score) return a.score > b.score;
      return a.position != b.position ? a.position < b.position : a.head < b.head;
    };
    const auto middle = order.ranked.begin() + static_cast<std::ptrdiff_t>(order.protected_count);
    std::sort(order.ranked.begin(), middle, before);
    std::sort(middle, order.ranked.end(), before);
  }
  return orders;
}

/// Fall of distortion from level t + 1 to level t, and the bytes that it costs.
double gain(std::span<const Tier> tiers, std::size_t t) {
  return (t + 1 < tiers.size() ? tiers[t + 1].distortion : 1.0) - tiers[t].distortion;
}
std::size_t rise(std::span<const Tier> tiers, std::size_t t) {
  return tiers[t].bytes - (t + 1 < tiers.size() ? tiers[t + 1].bytes : 0);
}

/// Gives every entry its level at the multiplier; returns the bytes of all.
std::size_t divide(std::vector<Order>& orders, std::span<const Tier> tiers, double m) {
  std::size_t bytes = 0;
  for (Order& order : orders) {
    order.ends.assign(tiers.size(), 0);
    for (std::size_t t = order.best; t < tiers.size(); ++t) {
      order.ends[t] = order.above(m * static_cast<double>(rise(tiers, t)) / gain(tiers, t));
      if (t + 1 == tiers.size()) order.ends[t] = std::max(order.ends[t], order.protected_count);
      bytes += order.ends[t] * rise(tiers, t);
    }
  }
  return bytes;
}

/// Whether the entry at rank i of a comes before that at rank j of b among equal gains.
bool goes_first(const Order& a, std::size_t i, const Order& b, std::size_t j) {
  if (&a == &b) return i < j;
  const Candidate &x = a.ranked[i], &y = b.ranked[j];
  return x.position != y.position ? x.position < y.position : x.head < y.head;
}

}  // namespace

std::vector<Tier> parse_tiers(std::string_view text, std::size_t key_dim, std::size_t value_dim,
                              std::size_t more) {
  std::vector<Tier> tiers;
  for (std::string_view rest = text;;) {
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

Allocation allocate(std::span<const HeadScores> heads, std::span<const Tier> tiers,
                    std::size_t budget, std::size_t fixed) {
  require(!tiers.empty(), "an allocation without tiers");
  std::vector<Order> orders = orders_of(heads, tiers.size());
  std::size_t least = fixed;
  for (const Order& order : orders) least += order.protected_count * tiers.back().bytes;
  require(least <= budget,
          "{} bytes do not hold the first and last tokens of every head; give at least {}", budget,
          least);
  budget -= fixed;

  // The smallest multiplier whose cost is within the budget.
  double low = -120, high = 120;  // of its logarithm
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (divide(orders, tiers, std::exp(middle)) > budget ? low : high) = middle;
  }
  std::size_t used = divide(orders, tiers, std::exp(high));

  // Of each level the entry of the best rank may rise by one level.
  while (true) {
    Order* best = nullptr;
    std::size_t level = 0;
    double most = -1;
    for (Order& order : orders) {
      for (std::size_t t = order.best; t < tiers.size(); ++t) {
        const std::size_t end = t + 1 < tiers.size() ? order.ends[t + 1] : order.ranked.size();
        if (order.ends[t] == end || rise(tiers, t) > budget - used) continue;
        const double by = static_cast<double>(order.score(order.ends[t])) * gain(tiers, t) /
                          static_cast<double>(rise(tiers, t));
        if (by > most ||
            (by == most && goes_first(order, order.ends[t], *best, best->ends[level]))) {
          most = by;
          best = &order;
          level = t;
        }
      }
    }
    if (best == nullptr) break;
    used += rise(tiers, level);
    ++best->ends[level];
  }

  Allocation out;
  out.bytes = used;
  for (const HeadScores& head : heads) {
    out.heads.emplace_back(head.scores.size(), static_cast<std::uint8_t>(tiers.size()));
  }
  for (const Order& order : orders) {
    for (std::size_t t = 0, rank = 0; t < tiers.size(); ++t) {
      for (; rank < order.ends[t]; ++rank) {
        out.heads[order.ranked[rank].head][order.ranked[rank].entry] = static_cast<std::uint8_t>(t);
      }
    }
  }
  return out;
}

}  // namespace ballast
