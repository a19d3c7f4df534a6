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

/// Candidates by falling score. An entry's level is its tier's index; evicted entries have the
/// level after the last tier. Levels rise along the order, so the number of entries at each level
/// or a better one describes them all.
class Order {
 public:
  explicit Order(std::span<const HeadScores> heads) {
    std::size_t count = 0;
    for (const HeadScores& head : heads) count += head.scores.size();
    ranked_.reserve(count);
    std::vector<Candidate> others;
    others.reserve(count);
    for (std::uint32_t h = 0; h < heads.size(); ++h) {
      const HeadScores& head = heads[h];
      const std::size_t n = head.scores.size();
      for (std::uint32_t i = 0; i < n; ++i) {
        const Position at = head.positions.empty() ? static_cast<Position>(i) : head.positions[i];
        const bool kept = i < head.first || i + head.last >= n;
        (kept ? ranked_ : others).push_back({head.scores[i], at, h, i});
        most_ = std::max(most_, head.scores[i]);
      }
    }
    protected_ = ranked_.size();
    for (Candidate& candidate : ranked_) candidate.score = most_;
    const auto before = [](const Candidate& a, const Candidate& b) {
      if (a.score != b.score) return a.score > b.score;
      return a.position != b.position ? a.position < b.position : a.head < b.head;
    };
    std::ranges::sort(ranked_, before);
    std::ranges::sort(others, before);
    ranked_.insert(ranked_.end(), others.begin(), others.end());
  }

  std::size_t size() const { return ranked_.size(); }
  std::size_t protected_count() const { return protected_; }
  float score(std::size_t rank) const { return ranked_[rank].score; }
  const Candidate& operator[](std::size_t rank) const { return ranked_[rank]; }
  /// Entries whose score is above the threshold.
  std::size_t above(double threshold) const {
    const auto it = std::partition_point(ranked_.begin(), ranked_.end(), [&](const Candidate& c) {
      return static_cast<double>(c.score) > threshold;
    });
    return static_cast<std::size_t>(it - ranked_.begin());
  }

 private:
  std::vector<Candidate> ranked_;
  std::size_t protected_ = 0;
  float most_ = 0;
};

/// Fall of distortion from level t + 1 to level t, and the bytes that it costs.
double gain(std::span<const Tier> tiers, std::size_t t) {
  return (t + 1 < tiers.size() ? tiers[t + 1].distortion : 1.0) - tiers[t].distortion;
}
std::size_t rise(std::span<const Tier> tiers, std::size_t t) {
  return tiers[t].bytes - (t + 1 < tiers.size() ? tiers[t + 1].bytes : 0);
}

/// ends[t]: entries at level t or a better one.
std::vector<std::size_t> at_multiplier(const Order& order, std::span<const Tier> tiers, double m) {
  std::vector<std::size_t> ends(tiers.size());
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    ends[t] = order.above(m * static_cast<double>(rise(tiers, t)) / gain(tiers, t));
  }
  ends.back() = std::max(ends.back(), order.protected_count());
  return ends;
}

std::size_t cost(std::span<const Tier> tiers, std::span<const std::size_t> ends) {
  std::size_t bytes = 0;
  for (std::size_t t = 0; t < tiers.size(); ++t) bytes += ends[t] * rise(tiers, t);
  return bytes;
}

}  // namespace

std::vector<Tier> parse_tiers(std::string_view text, std::size_t key_dim, std::size_t value_dim) {
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
                 sizeof(Position);
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
  const Order order(heads);
  const std::size_t least = order.protected_count() * tiers.back().bytes + fixed;
  require(least <= budget,
          "{} bytes do not hold the first and last tokens of every head; give at least {}", budget,
          least);
  budget -= fixed;

  // The smallest multiplier whose cost is within the budget.
  double low = -120, high = 120;  // of its logarithm
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (cost(tiers, at_multiplier(order, tiers, std::exp(middle))) > budget ? low : high) = middle;
  }
  std::vector<std::size_t> ends = at_multiplier(order, tiers, std::exp(high));
  std::size_t used = cost(tiers, ends);

  // Of each level the entry of the best rank may rise by one level.
  while (true) {
    std::size_t best = tiers.size();
    double most = -1;
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      const std::size_t end = t + 1 < tiers.size() ? ends[t + 1] : order.size();
      if (ends[t] == end || rise(tiers, t) > budget - used) continue;
      const double by = static_cast<double>(order.score(ends[t])) * gain(tiers, t) /
                        static_cast<double>(rise(tiers, t));
      if (by > most || (by == most && ends[t] < ends[best])) {
        most = by;
        best = t;
      }
    }
    if (best == tiers.size()) break;
    used += rise(tiers, best);
    ++ends[best];
  }

  Allocation out;
  out.bytes = used;
  for (const HeadScores& head : heads) {
    out.heads.emplace_back(head.scores.size(), static_cast<std::uint8_t>(tiers.size()));
  }
  for (std::size_t t = 0, rank = 0; t < tiers.size(); ++t) {
    for (; rank < ends[t]; ++rank) {
      out.heads[order[rank].head][order[rank].entry] = static_cast<std::uint8_t>(t);
    }
  }
  return out;
}

}  // namespace ballast
