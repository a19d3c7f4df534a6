#include "cache/head_observed.h"

#include <algorithm>
#include <limits>

namespace ballast {

HeadObserved::HeadObserved(const LayerAttention& attention, std::size_t h, const HeadCache& head,
                           std::size_t now, const CacheOptions& options)
    : attention_(&attention),
      h_(h),
      head_(&head),
      now_(now),
      options_(&options),
      entries_(head.entries()),
      ahead_(head.ahead()),
      held_(head.summary ? head.summary->entries() : 0),
      window_(static_cast<Position>(now - head.window.size())) {
  if (head.queries.most() > 0) head.segments(static_cast<Position>(now), segments_);
}

const LastQueries& HeadObserved::last() const {
  if (!last_) last_ = attention_->last_queries(h_, *head_, now_);
  return *last_;
}

const std::vector<float>& HeadObserved::all() const {
  if (all_) return *all_;
  if (const auto score = options_->policy.needs().recent_score; score != nullptr) {
    all_ = scores(score);
  } else {
    all_.emplace(entries_, 0.0f);
    Matrix unused(last().size(), head_->setup.value_dim);
    attention_->attend(h_, segments_, last().rows(0, unused.rows()), unused.view(), *all_);
  }
  return *all_;
}

std::vector<float> HeadObserved::scores(void (*score)(const QueryView&, std::span<double>)) const {
  const std::size_t dim = head_->setup.value_dim;
  Matrix values(entries_, dim), answer(1, dim);
  std::size_t entry = 0;
  for (const Segment& segment : segments_) {
    for (std::size_t i = 0; i < segment.values.rows; ++i) segment.values.decode(i, values[entry++]);
  }
  std::vector<float> out(entries_);
  std::vector<double> sums(entries_);
  for (std::size_t r = 0; r < last().size(); ++r) {
    std::ranges::fill(out, 0.0f);
    attention_->attend(h_, segments_, last().rows(r, 1), answer.view(), out);
    score({out, answer[0], values.view()}, sums);
  }
  static constexpr double most = std::numeric_limits<float>::max();
  std::ranges::transform(sums, out.begin(),
                         [](double sum) { return static_cast<float>(std::min(sum, most)); });
  return out;
}

std::span<const float> HeadObserved::held_attention() const {
  return std::span(all()).subspan(ahead_, held_);
}

std::span<const float> HeadObserved::attention(Position first, std::size_t count) const {
  const auto at = static_cast<std::size_t>(first - window_);
  return std::span(all()).subspan(ahead_ + held_ + at, count);
}

}  // namespace ballast
