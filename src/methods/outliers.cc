#include "methods/outliers.h"

#include <algorithm>
#include <numeric>

#include "ballast/serialize.h"
#include "base/fail.h"

namespace ballast {
namespace {

/// Of any model, which bounds what a file can make a reader allocate.
constexpr std::uint32_t kMostHeads = 1 << 16;

/// Positions of a head's outliers, the most anti-correlated first.
std::vector<Position> find_outliers(const RowsView& keys, Position first, std::size_t size) {
  std::vector<Position> found;
  std::vector<double> score;
  for (std::size_t begin = 0; begin < keys.rows; begin += size) {
    const std::size_t count = std::min(size, keys.rows - begin);
    Matrix rows(count, keys.dim);
    keys.slice(begin, count).decode(rows.view());
    std::vector<double> sum(keys.dim, 0.0);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t c = 0; c < keys.dim; ++c) sum[c] += rows[i][c];
    }
    for (std::size_t i = 0; i < count; ++i) {
      const double dot = std::inner_product(sum.begin(), sum.end(), rows[i].begin(), 0.0);
      if (dot > 0.0) continue;
      found.push_back(first + static_cast<Position>(begin + i));
      score.push_back(dot / static_cast<double>(count));
    }
  }
  std::vector<std::size_t> order(found.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return score[a] < score[b]; });
  std::vector<Position> sorted;
  for (std::size_t i : order) sorted.push_back(found[i]);
  return sorted;
}

}  // namespace

void OutlierMemory::mark(const SummarySetup& setup, const Block& block, std::size_t most,
                         std::span<std::uint8_t> marks) {
  const auto layer = static_cast<std::int64_t>(setup.random.layer);
  const std::int64_t source =
      std::min<std::int64_t>(setup.policy.integer("outlier-layer"), setup.layers - 1);
  if (layer < source) return;
  std::vector<Position> outliers;
  if (layer == source) {
    outliers = find_outliers(block.keys, block.first,
                             static_cast<std::size_t>(setup.policy.integer("block")));
    std::lock_guard lock(mutex_);
    found_[setup.random.head] = outliers;
  } else {
    std::lock_guard lock(mutex_);
    const auto known = found_.find(setup.random.head);
    require(known != found_.end(),
            "method balancekv: layer {} needs the outliers of layer {}, which is not summarised "
            "yet; summarise layers in order",
            layer, source);
    outliers = known->second;
  }
  const std::int64_t dilate = setup.policy.integer("dilate");
  std::size_t marked = 0;
  for (Position outlier : outliers) {
    const std::int64_t at = outlier - block.first;
    const std::int64_t begin = std::max<std::int64_t>(0, at - dilate);
    const std::int64_t end =
        std::min<std::int64_t>(static_cast<std::int64_t>(block.size()), at + dilate + 1);
    for (std::int64_t i = begin; i < end && marked < most; ++i) {
      marked += marks[static_cast<std::size_t>(i)] == 0 ? 1 : 0;
      marks[static_cast<std::size_t>(i)] = 1;
    }
  }
}

std::size_t OutlierMemory::bytes() const {
  std::lock_guard lock(mutex_);
  std::size_t total = 0;
  for (const auto& [head, positions] : found_) total += positions.capacity() * sizeof(Position);
  return total;
}

std::size_t OutlierMemory::most_bytes(Protocol protocol, std::size_t, std::size_t heads,
                                      std::size_t, std::size_t tokens) const {
  // Streams have theirs in the summaries.
  return protocol == Protocol::stream ? 0 : heads * tokens * sizeof(Position);
}

void OutlierMemory::save(ByteWriter& out) const {
  std::lock_guard lock(mutex_);
  out.put<std::uint64_t>(found_.size());
  for (const auto& [head, positions] : found_) {
    out.put<std::uint32_t>(head);
    out.put<std::uint64_t>(positions.size());
    out.put_all<Position>({positions.data(), positions.size()});
  }
}

void OutlierMemory::load(ByteReader& in) {
  std::lock_guard lock(mutex_);
  found_.clear();
  const std::size_t heads = in.get_count(in.left() / 12, "the number of heads with outliers");
  for (std::size_t i = 0; i < heads; ++i) {
    const auto head = in.get<std::uint32_t>();
    require(head < kMostHeads && (found_.empty() || head > found_.rbegin()->first),
            "{}: outliers of head {} come after those of head {}", in.what(), head,
            found_.empty() ? 0 : found_.rbegin()->first);
    const std::size_t count =
        in.get_count(in.left() / sizeof(Position), "the number of outliers of a head");
    std::vector<Position>& positions = found_[head];
    positions.resize(count);
    in.get_all<Position>({positions.data(), count});
    for (Position position : positions) {
      require(position >= 0, "{}: an outlier has position {}", in.what(), position);
    }
  }
}

}  // namespace ballast
