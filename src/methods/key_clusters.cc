#include "methods/key_clusters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ballast/random.h"
#include "ballast/serialize.h"
#include "base/fail.h"
#include "methods/kernels/distances.h"
#include "storage/rows_bytes.h"

namespace ballast {
namespace {

// Purposes of random numbers; clustergen.cc has its own.
constexpr std::uint32_t kReplaceSample = 0x200;
constexpr std::uint32_t kUniteSamples = 0x201;

// The part of the clusters that gets a neighbour each time δ grows.
constexpr std::size_t kOneIn = 10;

// Up to so many samples a cluster each is drawn for alone; of more, those that change are, so that
// a token of a long text takes few numbers.
constexpr std::size_t kDrawnAlone = 64;

}  // namespace

KeyClusters::KeyClusters(const SummarySetup& setup, double delta, std::size_t samples,
                         std::size_t most)
    : random_(setup.random),
      t_(samples),
      most_(most),
      delta_squared_(static_cast<float>(delta * delta)),
      representatives_(setup.key_type, setup.key_dim, most),
      tokens_(most),
      opened_by_(most),
      samples_(setup, 0, most * samples),
      key_(setup.key_dim),
      distances_(most),
      gaps_(most + 1),
      order_(most),
      stays_(most),
      chosen_(samples) {
  representatives_.set_mean(setup.key_mean);
}

double KeyClusters::delta() const { return std::sqrt(static_cast<double>(delta_squared_)); }

std::size_t KeyClusters::bytes() const {
  return representatives_.bytes() + samples_.bytes() + key_.size() * sizeof(float) +
         chosen_.size() * sizeof(std::uint32_t) +
         most_ * (sizeof(std::uint64_t) + sizeof(Position) + 2 * sizeof(float) +
                  sizeof(std::uint32_t) + sizeof(std::uint8_t));
}

Position KeyClusters::sample(std::size_t cluster, std::size_t j) const {
  return samples_.store().position(samples_.entry(slot(cluster, j)));
}

std::size_t KeyClusters::nearest(float& squared) const {
  kernels::squared_distances(representatives(), key_, distances_);
  const auto end = distances_.begin() + static_cast<std::ptrdiff_t>(size_);
  const auto least = std::min_element(distances_.begin(), end);
  squared = *least;
  return static_cast<std::size_t>(least - distances_.begin());
}

void KeyClusters::add(const Block& block, std::size_t i) {
  if (most_ == 0) return;
  block.keys.decode(i, key_);
  while (size_ > 0) {
    float squared = 0;
    const std::size_t cluster = nearest(squared);
    if (squared <= delta_squared_) return join(cluster, block, i);
    if (size_ < most_) break;
    grow(squared);
    block.keys.decode(i, key_);  // growing uses key_
  }
  open(block, i);
}

void KeyClusters::open(const Block& block, std::size_t i) {
  representatives_.copy(size_, block.keys, i);
  opened_by_[size_] = block.first + static_cast<Position>(i);
  tokens_[size_] = 1;
  std::iota(chosen_.begin(), chosen_.end(), static_cast<std::uint32_t>(slot(size_, 0)));
  samples_.put(chosen_, block, i);
  ++size_;
  weigh(size_ - 1);
}

void KeyClusters::join(std::size_t cluster, const Block& block, std::size_t i) {
  const auto position = static_cast<std::uint64_t>(block.first + static_cast<Position>(i));
  const double p = 1.0 / static_cast<double>(++tokens_[cluster]);
  std::size_t count = 0;
  if (t_ <= kDrawnAlone) {
    for (std::size_t j = 0; j < t_; ++j) {
      if (random_unit(random_, position, kReplaceSample, static_cast<std::uint32_t>(j)) < p) {
        chosen_[count++] = static_cast<std::uint32_t>(slot(cluster, j));
      }
    }
  } else {
    // The gaps between those that take the token are geometric.
    double at = -1;
    for (std::uint32_t draw = 0;; ++draw) {
      const double u = random_unit(random_, position, kReplaceSample, draw);
      at += 1 + std::floor(std::log1p(-u) / std::log1p(-p));
      if (!(at < static_cast<double>(t_))) break;
      chosen_[count++] = static_cast<std::uint32_t>(slot(cluster, static_cast<std::size_t>(at)));
    }
  }
  if (count != 0) samples_.put({chosen_.data(), count}, block, i);
  weigh(cluster);
}

void KeyClusters::weigh(std::size_t cluster) {
  const double each = static_cast<double>(tokens_[cluster]) / static_cast<double>(t_);
  // Neighbours mostly have the same multiplicity: its logarithm is taken once.
  std::uint32_t multiplicity = 0;
  float log_weight = 0;
  for (std::size_t j = 0; j < t_; ++j) {
    const std::uint32_t entry = samples_.entry(slot(cluster, j));
    if (samples_.multiplicity(entry) != multiplicity) {
      multiplicity = samples_.multiplicity(entry);
      log_weight = static_cast<float>(std::log(each * multiplicity));
    }
    samples_.store().set_log_weight(entry, log_weight);
  }
}

// δ grows to the lowest tenth of the distances from the nearest neighbour, those of the clusters
// and that of the key which found no room.
void KeyClusters::grow(float newcomer) {
  find_neighbours();
  std::size_t count = size_ > 1 ? size_ : 0;
  gaps_[count++] = newcomer;
  const auto at = gaps_.begin() + static_cast<std::ptrdiff_t>((count - 1) / kOneIn);
  std::nth_element(gaps_.begin(), at, gaps_.begin() + static_cast<std::ptrdiff_t>(count));
  delta_squared_ = std::max(delta_squared_, *at);
  ++growths_;
  unite_neighbours();
}

void KeyClusters::find_neighbours() {
  const RowsView rows = representatives();
  for (std::size_t c = 0; c < size_; ++c) {
    rows.decode(c, key_);
    kernels::squared_distances(rows, key_, distances_);
    distances_[c] = std::numeric_limits<float>::infinity();
    gaps_[c] = *std::min_element(distances_.begin(),
                                 distances_.begin() + static_cast<std::ptrdiff_t>(size_));
  }
}

// Larger clusters first: each stays, or joins the nearest that stays if that is within δ.
void KeyClusters::unite_neighbours() {
  std::iota(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(size_), 0u);
  std::sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(size_),
            [&](std::uint32_t a, std::uint32_t b) {
              return tokens_[a] != tokens_[b] ? tokens_[a] > tokens_[b]
                                              : opened_by_[a] < opened_by_[b];
            });
  std::fill(stays_.begin(), stays_.end(), std::uint8_t{0});
  const RowsView rows = representatives();
  for (std::size_t o = 0; o < size_; ++o) {
    const std::size_t c = order_[o];
    rows.decode(c, key_);
    kernels::squared_distances(rows, key_, distances_);
    std::size_t best = c;
    for (std::size_t other = 0; other < size_; ++other) {
      if (!stays_[other] || distances_[other] > delta_squared_) continue;
      if (best == c || distances_[other] < distances_[best]) best = other;
    }
    if (best == c) {
      stays_[c] = 1;
    } else {
      absorb_cluster(best, c);
    }
  }
  close_gaps();
}

void KeyClusters::absorb_cluster(std::size_t into, std::size_t from) {
  const double p = static_cast<double>(tokens_[from]) /
                   (static_cast<double>(tokens_[into]) + static_cast<double>(tokens_[from]));
  const auto key = static_cast<std::uint64_t>(opened_by_[from]);
  for (std::size_t j = 0; j < t_; ++j) {
    if (random_unit(random_, key, kUniteSamples, static_cast<std::uint32_t>(j)) < p) {
      samples_.copy(slot(into, j), slot(from, j));
    }
  }
  for (std::size_t j = 0; j < t_; ++j) samples_.release(slot(from, j));
  tokens_[into] += tokens_[from];
  tokens_[from] = 0;
}

void KeyClusters::close_gaps() {
  std::size_t to = 0;
  for (std::size_t c = 0; c < size_; ++c) {
    if (tokens_[c] == 0) continue;
    if (to != c) {
      representatives_.copy(to, representatives(), c);
      tokens_[to] = tokens_[c];
      opened_by_[to] = opened_by_[c];
      for (std::size_t j = 0; j < t_; ++j) samples_.copy(slot(to, j), slot(c, j));
      for (std::size_t j = 0; j < t_; ++j) samples_.release(slot(c, j));
    }
    weigh(to++);
  }
  size_ = to;
}

// Room for one more cluster of other's; returns the cluster that it joins, or size().
std::size_t KeyClusters::open_for(const KeyClusters& other, std::size_t cluster) {
  while (size_ > 0) {
    other.representatives().decode(cluster, key_);
    float squared = 0;
    const std::size_t at = nearest(squared);
    if (squared <= delta_squared_) return at;
    if (size_ < most_) break;
    grow(squared);
  }
  return size_;
}

void KeyClusters::merge(const KeyClusters& other) {
  delta_squared_ = std::max(delta_squared_, other.delta_squared_);
  growths_ = std::max(growths_, other.growths_);
  for (std::size_t c = 0; c < other.size_; ++c) {
    const std::size_t at = open_for(other, c);
    const bool opened = at == size_;
    if (opened) {
      representatives_.copy(at, other.representatives(), c);
      opened_by_[at] = other.opened_by_[c];
      tokens_[at] = 0;
      ++size_;
    }
    const auto mine = static_cast<double>(tokens_[at]);
    const auto theirs = static_cast<double>(other.tokens_[c]);
    const auto key = static_cast<std::uint64_t>(other.opened_by_[c]);
    for (std::size_t j = 0; j < t_; ++j) {
      const double u = random_unit(random_, key, kUniteSamples, static_cast<std::uint32_t>(j));
      if (!opened && u >= theirs / (mine + theirs)) continue;
      // A token taken before is shared.
      const std::uint32_t entry = other.samples_.entry(other.slot(c, j));
      const Position position = other.samples_.store().position(entry);
      std::size_t same = 0;
      while (same < j && !(other.samples_.entry(other.slot(c, same)) == entry &&
                           samples_.entry(slot(at, same)) != SampleSlots::kNone &&
                           sample(at, same) == position)) {
        ++same;
      }
      const auto to = static_cast<std::uint32_t>(slot(at, j));
      if (same < j) {
        samples_.copy(to, slot(at, same));
      } else {
        samples_.put({&to, 1}, other.samples_, entry);
      }
    }
    tokens_[at] += other.tokens_[c];
    weigh(at);
  }
}

void KeyClusters::save(ByteWriter& out) const {
  out.put<std::uint64_t>(size_);
  out.put(delta_squared_);
  out.put<std::uint64_t>(growths_);
  out.put_all<std::uint64_t>({tokens_.data(), size_});
  out.put_all<Position>({opened_by_.data(), size_});
  save_rows(out, representatives());
  samples_.save(out, size_ * t_);
}

void KeyClusters::load(ByteReader& in) {
  size_ = 0;
  const std::size_t size = in.get_count(most_, "the number of clusters");
  delta_squared_ = in.get<float>();
  growths_ = in.get<std::uint64_t>();
  in.get_all<std::uint64_t>({tokens_.data(), size});
  in.get_all<Position>({opened_by_.data(), size});
  require(delta_squared_ >= 0, "{}: clusters of radius² {}", in.what(), delta_squared_);
  load_rows(in, representatives_, 0, size);
  samples_.load(in, size * t_);
  constexpr std::size_t kNoOne = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> owner(samples_.store().size(), kNoOne);
  for (std::size_t c = 0; c < size; ++c) {
    require(tokens_[c] > 0 && tokens_[c] < 1ull << 48 && opened_by_[c] >= 0,
            "{}: cluster {} has {} tokens", in.what(), c, tokens_[c]);
    for (std::size_t j = 0; j < t_; ++j) {
      const std::uint32_t entry = samples_.entry(slot(c, j));
      require(entry != SampleSlots::kNone, "{}: cluster {} lacks a sample", in.what(), c);
      require(owner[entry] == kNoOne || owner[entry] == c, "{}: two clusters share a sample",
              in.what());
      owner[entry] = c;
    }
  }
  size_ = size;
  for (std::size_t c = 0; c < size_; ++c) weigh(c);
}

}  // namespace ballast
