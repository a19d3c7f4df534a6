// SnapKV: the tokens to which the last queries pay most attention, smoothed over neighbours.
// Li et al. 2024. The cache sums the attention over the queries and the query heads of a KV head.
#include "methods/snapkv.h"

#include <algorithm>
#include <numeric>

#include "ballast/selection.h"
#include "methods/adaptive.h"
#include "methods/registry.h"

namespace ballast {
namespace {

/// Pools over neighbours in the text. Evicted neighbours count as an attention sum of 0.
class SnapKv : public SelectionSummary {
 public:
  explicit SnapKv(const SummarySetup& setup)
      : SelectionSummary(setup, {.by_rule = setup.capacity}),
        reach_(static_cast<Position>(setup.policy.integer("kernel") / 2)),
        maximum_(setup.policy.choice("pooling") == "max"),
        in_order_(setup.capacity) {
    tail_.reserve(static_cast<std::size_t>(reach_));
  }

  void observe_recent(const Observed& observed) override {
    replace(attention_sums(), observed.held_attention());
  }
  std::size_t bytes() const override {
    return SelectionSummary::bytes() + in_order_.capacity() * sizeof(in_order_[0]) +
           tail_.capacity() * sizeof(tail_[0]);
  }

 protected:
  void prepare(const Block& block) override {
    attention_ = attention_of(block);
    tail_.clear();
    in_order_.resize(store().size());
    std::iota(in_order_.begin(), in_order_.end(), 0u);
    std::ranges::sort(in_order_, {}, [&](auto slot) { return store().position(slot); });
    for (std::size_t i = 0; i < in_order_.size(); ++i) {
      const Position at = store().position(in_order_[i]);
      float pooled = attention_sums()[in_order_[i]];
      for (std::size_t j = i; j-- > 0 && near(j, at);) pool(pooled, attention_sums()[in_order_[j]]);
      for (std::size_t j = i + 1; j < in_order_.size() && near(j, at); ++j) {
        pool(pooled, attention_sums()[in_order_[j]]);
      }
      for (std::size_t j = 0; j < block.size() && token(block, j) - at <= reach_; ++j) {
        pool(pooled, attention_[j]);
      }
      ranks()[in_order_[i]] = pooled;
      if (block.first - at <= reach_) tail_.push_back({at, attention_sums()[in_order_[i]]});
    }
  }

  float rank(const Block& block, std::size_t i) override {
    const auto reach = static_cast<std::size_t>(reach_);
    const std::size_t end = std::min(block.size(), i + reach + 1);
    float pooled = 0.0f;
    for (std::size_t j = i - std::min(i, reach); j < end; ++j) pool(pooled, attention_[j]);
    for (const Held& held : tail_) {
      if (token(block, i) - held.position <= reach_) pool(pooled, held.attention_sum);
    }
    return pooled;
  }

 private:
  struct Held {
    Position position;
    float attention_sum;
  };

  static Position token(const Block& block, std::size_t i) {
    return block.first + static_cast<Position>(i);
  }
  bool near(std::size_t j, Position at) const {
    return std::abs(store().position(in_order_[j]) - at) <= reach_;
  }
  // The average's divisor is the same for all tokens (zeros pad the ends) and may be left out.
  void pool(float& pooled, float attention_sum) const {
    pooled = maximum_ ? std::max(pooled, attention_sum) : pooled + attention_sum;
  }

  std::span<const float> attention_;  ///< of the block
  Position reach_;
  bool maximum_;
  std::vector<std::uint32_t> in_order_;  ///< slots by position
  std::vector<Held> tail_;               ///< entries that are neighbours of the block
};

}  // namespace

std::unique_ptr<Summary> make_snapkv(const SummarySetup& setup) {
  return std::make_unique<SnapKv>(setup);
}

std::vector<Parameter> snapkv_parameters() {
  using Kind = Parameter::Kind;
  std::vector<Parameter> all = {
      {"observe", Kind::integer, "32", 1, 65536, "", "last tokens whose queries choose"},
      {"kernel", Kind::integer, "5", 1, 65, "",
       "tokens pooled, the middle one scored; even: as the next odd one"},
      {"pooling", Kind::choice, "average", 0, 0, "average|max", "how neighbours are pooled"}};
  const std::vector<Parameter> heads = adaptive_parameters("uniform");
  all.insert(all.end(), heads.begin(), heads.end());
  return all;
}

const MethodInfo& snapkv_method() {
  static const MethodInfo info = {
      .name = "snapkv",
      .title = "the tokens to which the last queries pay most attention",
      .paper = "Li et al. 2024, SnapKV",
      .parameters = snapkv_parameters(),
      .step = 32,
      .needs = {.recent_queries = true},
      .make = make_snapkv,
  };
  return info;
}

}  // namespace ballast
