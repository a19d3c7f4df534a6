#include "ballast/selection.h"

#include <algorithm>
#include <cmath>

#include "ballast/serialize.h"
#include "base/checks.h"
#include "base/fail.h"

namespace ballast {
namespace {

// A long block is absorbed in pieces of at least this many tokens.
constexpr std::size_t kLeastChunk = 256;

}  // namespace

SelectionSummary::SelectionSummary(const SummarySetup& setup, const Options& options)
    : capacity_(setup.capacity),
      options_(options),
      needs_(setup.policy.needs()),
      store_(setup, setup.capacity),
      chunk_(std::max(setup.capacity, kLeastChunk)),
      rank_(setup.capacity + chunk_),
      attention_sum_(setup.capacity + chunk_),
      order_(setup.capacity + chunk_),
      stays_(setup.capacity + chunk_) {
  options_.by_rule = std::min(options_.by_rule, capacity_);
}

std::size_t SelectionSummary::bytes() const {
  return store_.bytes() + rank_.size() * (sizeof(rank_[0]) + sizeof(attention_sum_[0]) +
                                          sizeof(order_[0]) + sizeof(stays_[0]));
}

void SelectionSummary::segments(std::vector<Segment>& out) const {
  if (store_.size() != 0) out.push_back(store_.segment(Role::both, false));
}

std::vector<KeptEntry> SelectionSummary::kept() const {
  std::vector<KeptEntry> out;
  for (Position position : store_.positions()) out.push_back({position, 1, 1});
  return out;
}

void SelectionSummary::observe(std::span<const float> attention_sum) {
  require(attention_sum.size() == store_.size(), "{} attention sums were observed for {} entries",
          attention_sum.size(), store_.size());
  for (std::size_t i = 0; i < attention_sum.size(); ++i) attention_sum_[i] += attention_sum[i];
}

void SelectionSummary::replace(std::span<float> known, std::span<const float> attention_sum) const {
  require(attention_sum.size() == known.size(), "{} attention sums were observed for {} entries",
          attention_sum.size(), known.size());
  std::ranges::copy(attention_sum, known.begin());
}

std::span<const float> SelectionSummary::attention_of(const Block& block) const {
  if (!needs_.attention_sums && !needs_.recent_queries) return {};
  const std::span<const float> sums =
      needs_.attention_sums ? block.attention_sum : block.recent_attention();
  require(sums.size() == block.size(),
          "a block of {} tokens came with {} attention sums, this method needs one a token",
          block.size(), sums.size());
  return sums;
}

void SelectionSummary::absorb(const Block& block) {
  const std::span<const float> sums = attention_of(block);
  prepare(block);
  for (std::size_t done = 0; done < block.size();) {
    const std::size_t count = std::min(chunk_, block.size() - done);
    const std::size_t size = store_.size();
    const Block piece = block.slice(done, count);
    for (std::size_t i = 0; i < count; ++i) {
      rank_[size + i] = rank(block, done + i);
      attention_sum_[size + i] = sums.empty() ? 0.0f : sums[done + i];
    }
    take_in(piece);
    done += count;
  }
  finish(block);
}

void SelectionSummary::scores(const Block& block, std::span<float> out) {
  require(store_.size() == 0, "a summary of {} entries is asked for scores of a first block",
          store_.size());
  prepare(block);
  for (std::size_t i = 0; i < block.size(); ++i) out[i] = rank(block, i);
}

Position SelectionSummary::position(const Block& block, std::size_t i) const {
  return i < store_.size() ? store_.position(i)
                           : block.first + static_cast<Position>(i - store_.size());
}

bool SelectionSummary::outranks(const Block& block, std::size_t a, std::size_t b) const {
  if (rank_[a] != rank_[b]) return rank_[a] > rank_[b];
  return position(block, a) > position(block, b);
}

bool SelectionSummary::heavier(const Block& block, std::size_t a, std::size_t b) const {
  const Position pa = position(block, a);
  const Position pb = position(block, b);
  double ma = attention_sum_[a];
  double mb = attention_sum_[b];
  if (options_.mean) {
    // Queries that could see a token: its own and all later ones.
    ma /= std::max<Position>(1, block.now - pa);
    mb /= std::max<Position>(1, block.now - pb);
  }
  if (ma != mb) return (ma > mb) != options_.lightest;
  return pa > pb;
}

void SelectionSummary::take_in(const Block& block) {
  seen_ += block.size();
  const std::size_t total = store_.size() + block.size();
  if (seen_ <= capacity_) {
    for (std::size_t i = 0; i < block.size(); ++i) store_.push(block, i);
    return;
  }
  if (block.size() == 1 && store_.full() && options_.by_rule == 0) return choose_one(block);
  choose(block, total);
  place(block, total);
}

// One token comes in, one is evicted, by attention alone.
void SelectionSummary::choose_one(const Block& block) {
  const std::size_t newcomer = store_.size();
  const bool by_sum = !options_.mean && !options_.lightest;
  std::size_t least = newcomer;
  for (std::size_t i = 0; i < newcomer; ++i) {
    // Decides most cases without heavier().
    if (by_sum && attention_sum_[i] > attention_sum_[least]) continue;
    if (heavier(block, least, i)) least = i;
  }
  if (least == newcomer) return;
  store_.replace(least, block, 0);
  rank_[least] = rank_[newcomer];
  attention_sum_[least] = attention_sum_[newcomer];
}

// Marks the candidates that stay.
void SelectionSummary::choose(const Block& block, std::size_t total) {
  std::fill_n(stays_.begin(), total, std::uint8_t{0});
  for (std::size_t i = 0; i < total; ++i) order_[i] = static_cast<std::uint32_t>(i);
  const auto all = order_.begin() + static_cast<std::ptrdiff_t>(total);
  auto ranked = std::partition(order_.begin(), all, [&](auto i) { return rank_[i] > closed_; });
  const auto by_rule = static_cast<std::ptrdiff_t>(options_.by_rule);
  if (ranked - order_.begin() > by_rule) {
    auto cut = order_.begin() + by_rule;
    std::nth_element(order_.begin(), cut, ranked,
                     [&](auto a, auto b) { return outranks(block, a, b); });
    ranked = cut;
    if (options_.whole_ranks) {
      closed_ = rank_[*cut];
      ranked = std::partition(order_.begin(), cut, [&](auto i) { return rank_[i] > closed_; });
    }
  }
  const auto by_attention_sum = static_cast<std::ptrdiff_t>(capacity_ - options_.by_rule);
  auto heavy = all;
  if (all - ranked > by_attention_sum) {
    heavy = ranked + by_attention_sum;
    std::nth_element(ranked, heavy, all, [&](auto a, auto b) { return heavier(block, a, b); });
  }
  for (auto it = order_.begin(); it != heavy; ++it) stays_[*it] = 1;
}

// Tokens that stay take the slots of the entries that are evicted.
void SelectionSummary::place(const Block& block, std::size_t total) {
  const std::size_t held = store_.size();
  std::size_t slot = 0;
  for (std::size_t i = held; i < total; ++i) {
    if (!stays_[i]) continue;
    while (slot < held && stays_[slot]) ++slot;
    std::size_t to = store_.size();
    if (slot < held) {
      to = slot;
      stays_[slot] = 1;
      store_.replace(to, block, i - held);
    } else {
      store_.push(block, i - held);
    }
    rank_[to] = rank_[i];
    attention_sum_[to] = attention_sum_[i];
  }
  // Once push() has appended a token, no slot is left to free.
  for (std::size_t i = held; i-- > slot;) {
    if (stays_[i]) continue;
    const std::size_t last = store_.size() - 1;
    rank_[i] = rank_[last];
    attention_sum_[i] = attention_sum_[last];
    store_.erase(i);
  }
}

void SelectionSummary::save(ByteWriter& out) const {
  store_.save(out);
  out.put<std::uint64_t>(seen_);
  out.put<float>(closed_);
  out.put_all<float>({rank_.data(), store_.size()});
  out.put_all<float>({attention_sum_.data(), store_.size()});
}

void SelectionSummary::load(ByteReader& in) {
  store_.load(in);
  seen_ = in.get<std::uint64_t>();
  closed_ = in.get<float>();
  in.get_all(ranks());
  in.get_all(attention_sums());
  // From 0 on: sums of finite numbers of both signs may be none, which sorting relies on.
  require(seen_ >= store_.size() && !std::isnan(closed_) &&
              first_not_finite(attention_sums()) == store_.size() &&
              std::ranges::all_of(attention_sums(), [](float x) { return x >= 0; }) &&
              std::ranges::none_of(ranks(), [](float x) { return std::isnan(x); }),
          "{}: the scores of a summary are not numbers", in.what());
}

}  // namespace ballast
