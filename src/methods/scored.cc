#include "methods/scored.h"

#include <algorithm>
#include <numeric>

#include "ballast/serialize.h"
#include "base/checks.h"
#include "base/fail.h"

namespace ballast {

ScoredSummary::ScoredSummary(const SummarySetup& setup, Remembers remembers)
    : setup_(setup),
      capacity_(setup.capacity),
      remembers_(remembers),
      store_(setup, setup.capacity) {
  if (remembers_.attention) attention_.reserve(capacity_);
  if (remembers_.weight) weights_.reserve(capacity_);
}

std::size_t ScoredSummary::bytes() const {
  return store_.bytes() + (attention_.capacity() + weights_.capacity()) * sizeof(float);
}

void ScoredSummary::segments(std::vector<Segment>& out) const {
  if (store_.size() != 0) out.push_back(store_.segment(Role::both, false));
}

std::vector<KeptEntry> ScoredSummary::kept() const {
  std::vector<KeptEntry> out;
  for (Position position : store_.positions()) out.push_back({position, 1, 1});
  return out;
}

void ScoredSummary::observe_recent(const Observed& observed) {
  if (!remembers_.attention) return;
  const std::span<const float> attention_sum = observed.held_attention();
  require(attention_sum.size() == store_.size(), "{} attention sums were observed for {} entries",
          attention_sum.size(), store_.size());
  std::ranges::copy(attention_sum, attention_.begin());
}

ScoredSummary::Candidates ScoredSummary::candidates(const Block& block) {
  Candidates all{store_, block, attention_, weights_};
  if (remembers_.attention) {
    const std::span<const float> sums = block.recent_attention();
    require(sums.size() == block.size(),
            "a block of {} tokens came with {} attention sums, this method needs one a token",
            block.size(), sums.size());
    all.attention.insert(all.attention.end(), sums.begin(), sums.end());
  }
  if (remembers_.weight) {
    all.weights.resize(all.size());
    weigh(block, std::span(all.weights).subspan(store_.size()));
  }
  return all;
}

void ScoredSummary::scores(const Block& block, std::span<float> out) {
  require(store_.size() == 0, "a summary of {} entries is asked for scores of a first block",
          store_.size());
  const Candidates all = candidates(block);
  score(all, out);
}

// The candidates that stay, ascending.
std::vector<std::size_t> ScoredSummary::choose(const Candidates& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (all.size() <= capacity_) return order;
  std::vector<float> scores(all.size());
  const auto pick = [&](std::size_t from, std::size_t to) {
    const auto begin = order.begin();
    std::nth_element(begin + static_cast<std::ptrdiff_t>(from),
                     begin + static_cast<std::ptrdiff_t>(to), order.end(),
                     [&](std::size_t a, std::size_t b) {
                       return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
                     });
  };
  const std::size_t first = std::min(chosen_first(), capacity_);
  score(all, scores);
  pick(0, first);
  if (first < capacity_) {
    score_rest(all, scores);
    pick(first, capacity_);
  }
  order.resize(capacity_);
  std::ranges::sort(order);
  return order;
}

void ScoredSummary::absorb(const Block& block) {
  const Candidates all = candidates(block);
  const std::vector<std::size_t> stays = choose(all);
  const std::size_t held = store_.size();
  const auto split = std::ranges::lower_bound(stays, held);
  store_.keep({stays.begin(), split});
  for (auto it = split; it != stays.end(); ++it) store_.push(block, *it - held);
  const auto remember = [&](std::vector<float>& kept, const std::vector<float>& of_all) {
    kept.clear();
    for (std::size_t i : stays) kept.push_back(of_all[i]);
  };
  if (remembers_.attention) remember(attention_, all.attention);
  if (remembers_.weight) remember(weights_, all.weights);
}

void ScoredSummary::save(ByteWriter& out) const {
  store_.save(out);
  out.put_all<float>(attention_);
  out.put_all<float>(weights_);
}

void ScoredSummary::load(ByteReader& in) {
  store_.load(in);
  Position before = -1;
  for (Position position : store_.positions()) {
    require(position > before, "{}: position {} comes after {}", in.what(), position, before);
    before = position;
  }
  const auto get = [&](std::vector<float>& kept) {
    kept.resize(store_.size());
    in.get_all<float>(kept);
    require(first_not_finite(kept) == kept.size(), "{}: the scores of a summary are not numbers",
            in.what());
  };
  if (remembers_.attention) get(attention_);
  if (remembers_.weight) get(weights_);
}

}  // namespace ballast
