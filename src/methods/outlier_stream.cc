#include "methods/outlier_stream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/serialize.h"
#include "base/fail.h"

namespace ballast {
namespace {

constexpr float kNoOutlier = std::numeric_limits<float>::infinity();

/// The entries of a store as a block in which entry `slot` has its own position.
Block block_of(const EntryStore& store, std::size_t slot) {
  Block block;
  block.keys = store.keys();
  block.values = store.values();
  block.first = store.position(slot) - static_cast<Position>(slot);
  return block;
}

}  // namespace

OutlierStream::OutlierStream(const SummarySetup& setup, std::size_t most, std::size_t dilate,
                             std::size_t block)
    : dilate_(dilate),
      block_(block),
      mean_(setup.key_dim, 0.0),
      kept_(setup, most),
      waiting_(setup, dilate),
      key_(setup.key_dim) {
  scores_.reserve(most);
  if (most > 0) found_.reserve(2 * dilate + block);
}

void OutlierStream::find(const Block& block) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    block.keys.decode(i, key_);
    const double step = 1.0 / static_cast<double>(std::min<std::uint64_t>(++tokens_, block_));
    for (std::size_t c = 0; c < key_.size(); ++c) mean_[c] += step * (key_[c] - mean_[c]);
  }
  for (std::size_t i = 0; i < block.size(); ++i) {
    block.keys.decode(i, key_);
    double dot = 0;
    for (std::size_t c = 0; c < key_.size(); ++c) dot += mean_[c] * key_[c];
    if (dot > 0) continue;
    found_.push_back({block.first + static_cast<Position>(i), static_cast<float>(dot)});
  }
}

float OutlierStream::score_at(Position position) const {
  const auto reach = static_cast<Position>(dilate_);
  float least = kNoOutlier;
  auto outlier = std::ranges::lower_bound(found_, position - reach, {}, &Outlier::position);
  for (; outlier != found_.end() && outlier->position <= position + reach; ++outlier) {
    least = std::min(least, outlier->score);
  }
  return least;
}

void OutlierStream::settle(const Block& block, std::size_t i, float score, const Release& release) {
  if (score == kNoOutlier || kept_.capacity() == 0) return release(block, i);
  if (!kept_.full()) {
    kept_.push(block, i);
    scores_.push_back(score);
    return;
  }
  // The largest score goes; of equal ones the newest.
  std::size_t worst = 0;
  for (std::size_t slot = 1; slot < scores_.size(); ++slot) {
    if (scores_[slot] > scores_[worst] ||
        (scores_[slot] == scores_[worst] && kept_.position(slot) > kept_.position(worst))) {
      worst = slot;
    }
  }
  if (score >= scores_[worst]) return release(block, i);
  release(block_of(kept_, worst), worst);
  kept_.replace(worst, block, i);
  scores_[worst] = score;
}

void OutlierStream::absorb(const Block& block, const Release& release) {
  if (kept_.capacity() == 0) {
    for (std::size_t i = 0; i < block.size(); ++i) release(block, i);
    return;
  }
  for (std::size_t begin = 0; begin < block.size(); begin += block_) {
    absorb_part(block.slice(begin, std::min(block_, block.size() - begin)), release);
  }
}

void OutlierStream::absorb_part(const Block& block, const Release& release) {
  find(block);
  for (std::size_t i = 0; i < block.size(); ++i) {
    const Position position = block.first + static_cast<Position>(i);
    if (dilate_ == 0) {
      settle(block, i, score_at(position), release);
    } else if (!waiting_.full()) {
      waiting_.push(block, i);
    } else {
      const std::size_t slot = static_cast<std::size_t>(tokens_ - block.size() + i) % dilate_;
      settle(block_of(waiting_, slot), slot, score_at(waiting_.position(slot)), release);
      waiting_.replace(slot, block, i);
    }
  }
  // Tokens from `end - dilate` on wait; an outlier reaches `dilate` further.
  const Position end = block.first + static_cast<Position>(block.size());
  const auto far = 2 * static_cast<Position>(dilate_);
  std::erase_if(found_, [&](const Outlier& o) { return o.position < end - far; });
}

void OutlierStream::merge(const OutlierStream& other, const Release& release) {
  for (std::size_t slot = 0; slot < other.kept_.size(); ++slot) {
    settle(block_of(other.kept_, slot), slot, other.scores_[slot], release);
  }
  for (std::size_t slot = 0; slot < other.waiting_.size(); ++slot) {
    release(block_of(other.waiting_, slot), slot);
  }
  const double all = static_cast<double>(tokens_ + other.tokens_);
  if (all == 0) return;
  const double share = static_cast<double>(other.tokens_) / all;
  for (std::size_t c = 0; c < mean_.size(); ++c) mean_[c] += share * (other.mean_[c] - mean_[c]);
}

std::size_t OutlierStream::bytes() const {
  return kept_.bytes() + waiting_.bytes() + scores_.capacity() * sizeof(float) +
         mean_.size() * sizeof(double) + key_.size() * sizeof(float) +
         found_.capacity() * sizeof(Outlier);
}

void OutlierStream::segments(std::vector<Segment>& out) const {
  for (const EntryStore* store : {&kept_, &waiting_}) {
    if (store->size() > 0) out.push_back(store->segment(Role::both, false));
  }
}

void OutlierStream::kept(std::vector<KeptEntry>& out) const {
  for (const EntryStore* store : {&kept_, &waiting_}) {
    for (Position position : store->positions()) out.push_back({position, 1, 1});
  }
}

void OutlierStream::save(ByteWriter& out) const {
  out.put<std::uint64_t>(tokens_);
  out.put_all<double>(mean_);
  kept_.save(out);
  out.put_all<float>(scores_);
  waiting_.save(out);
  out.put<std::uint64_t>(found_.size());
  out.put_all<Outlier>(found_);
}

void OutlierStream::load(ByteReader& in) {
  tokens_ = in.get<std::uint64_t>();
  in.get_all<double>(mean_);
  for (double x : mean_) require(std::isfinite(x), "{}: the mean of keys is {}", in.what(), x);
  kept_.load(in);
  scores_.resize(kept_.size());
  in.get_all<float>(scores_);
  for (float x : scores_) require(x <= 0, "{}: the score of an outlier is {}", in.what(), x);
  waiting_.load(in);
  require(waiting_.size() == std::min<std::uint64_t>(tokens_, dilate_), "{}: {} of {} tokens wait",
          in.what(), waiting_.size(), tokens_);
  found_.resize(in.get_count(in.left() / sizeof(Outlier), "the number of outliers"));
  in.get_all<Outlier>(found_);
  for (std::size_t i = 0; i < found_.size(); ++i) {
    require(found_[i].score <= 0 && (i == 0 || found_[i].position > found_[i - 1].position),
            "{}: outlier {} at {} has score {}", in.what(), i, found_[i].position, found_[i].score);
  }
}

}  // namespace ballast
