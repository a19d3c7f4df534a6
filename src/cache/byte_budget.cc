#include "cache/byte_budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "attention/rotary.h"
#include "ballast/memory_size.h"
#include "ballast/summary.h"
#include "base/fail.h"
#include "storage/low_bits.h"
#include "summary/entry_budget.h"
#include "summary/query_moments.h"

namespace ballast {
namespace {

/// The bytes of caches that differ in their entries only.
class Sizes {
 public:
  Sizes(const CacheShape& shape, const CacheOptions& options, std::size_t tokens)
      : shape_(shape), options_(options), tokens_(tokens) {
    set_types(options.policy, options_.key_type, options_.value_type);
    const AttentionStats::Kind watch = options.policy.attention_stats().kind;
    row_ = stored_row_bytes(options_.key_type, shape.key_dim) +
           stored_row_bytes(options_.value_type, shape.value_dim);
    window_row_ = row_;
    if (watch == AttentionStats::Kind::accumulated || watch == AttentionStats::Kind::both) {
      window_row_ += sizeof(float);
    }
    queries_ =
        options.policy.observed() * shape.queries_per_kv_head * shape.key_dim * sizeof(float);
    if (options.policy.attention_stats().query_moments) {
      // They take their memory at the first query.
      QueryMoments moments(shape.queries_per_kv_head, shape.key_dim, shape.rotary);
      const std::vector<float> query(shape.key_dim, 0.0f);
      for (std::size_t g = 0; g < shape.queries_per_kv_head; ++g) {
        moments.add(g, query, QueryMoments::kSkipped);
      }
      moments_ = moments.bytes();
    }
    if (options.policy.info().make_shared != nullptr) {
      shared_ = options.policy.info().make_shared(options.policy);
      bounded_ = dynamic_cast<const BoundedState*>(shared_.get());
    }
  }

  /// With budget=`entries`.
  std::size_t with(std::size_t entries) {
    const Policy policy = with_entries(options_.policy, entries);
    const auto layers = static_cast<int>(shape_.layers);
    std::size_t bytes = 0, most = 0, summarised = 0, middle = tokens_;
    for (int l = 0; l < layers; ++l) {
      const Budget budget = with_first(policy.budget(tokens_, options_.protocol, l, layers),
                                       options_.key_type, options_.value_type);
      std::size_t head = queries_;
      if (tokens_ > 0 && tokens_ <= budget.total()) {  // nothing is summarised
        head += tokens_ * window_row_ + moments_ + low_bit_bytes(kFirstTokens);
        most = std::max(most, tokens_);
      } else {
        head += low_bit_bytes(budget.sink) + budget.sink * row_ +
                (budget.window + budget.step) * window_row_ + summary_bytes(budget, l) +
                (budget.step > 0 ? moments_ : 0);
        summarised += budget.summary;
        middle = tokens_ - std::min(tokens_, budget.sink + budget.window);
        most = std::max(most, budget.total());
      }
      bytes += shape_.kv_heads * head;
    }
    if (bounded_ != nullptr)
      bytes += bounded_->most_bytes(options_.protocol, shape_.layers, shape_.kv_heads, summarised,
                                    middle);
    if (options_.positions == Positions::rolling) {
      // In prefill the whole text had places.
      if (options_.protocol == Protocol::prefill) most = std::max(most, tokens_);
      bytes += RotaryTable::bytes_for(most + 1, shape_.rotary.frequencies.size());
    }
    return bytes;
  }

 private:
  /// Of one head: means, and what up to `sink` first tokens take more than others.
  std::size_t low_bit_bytes(std::size_t sink) const {
    const std::size_t first = tokens_ == 0 ? sink : std::min(sink, tokens_);
    return ballast::low_bit_bytes(options_.key_type, shape_.key_dim, first) +
           ballast::low_bit_bytes(options_.value_type, shape_.value_dim, first);
  }

  /// Of one head. Summaries take their memory when they are made, so one is made.
  std::size_t summary_bytes(const Budget& budget, int layer) {
    // Layers that share state may hold different things in as many entries.
    const std::pair key{budget.summary, shared_ == nullptr ? 0 : layer};
    const auto known = summaries_.find(key);
    if (known != summaries_.end()) return known->second;
    SummarySetup setup;
    setup.policy = options_.policy;
    setup.protocol = options_.protocol;
    setup.capacity = budget.summary;
    setup.sink = budget.sink;
    const std::size_t apart = budget.sink + budget.window;
    const std::size_t expected = std::max(options_.expected_tokens, tokens_);
    setup.tokens = expected > apart ? expected - apart : 0;
    setup.key_dim = shape_.key_dim;
    setup.value_dim = shape_.value_dim;
    setup.queries_per_kv_head = shape_.queries_per_kv_head;
    setup.key_type = options_.key_type;
    setup.value_type = options_.value_type;
    setup.logits = shape_.logits;
    setup.random = {options_.seed, static_cast<std::uint32_t>(layer), 0};
    setup.layers = static_cast<int>(shape_.layers);
    setup.shared = shared_.get();
    const std::unique_ptr<Summary> summary = make_summary(setup);
    const std::size_t bytes = summary ? summary->bytes() : 0;
    summaries_[key] = bytes;
    return bytes;
  }

  const CacheShape& shape_;
  CacheOptions options_;
  std::size_t tokens_;
  std::size_t row_ = 0;
  std::size_t window_row_ = 0;
  std::size_t queries_ = 0;
  std::size_t moments_ = 0;  ///< of queries, as long as something may be chosen by them
  std::unique_ptr<SharedState> shared_;
  const BoundedState* bounded_ = nullptr;
  std::map<std::pair<std::size_t, int>, std::size_t> summaries_;  ///< bytes, by capacity and layer
};

}  // namespace

std::size_t exact_bf16_bytes(const CacheShape& shape, std::size_t tokens) {
  return tokens * shape.layers * shape.kv_heads * (shape.key_dim + shape.value_dim) *
         sizeof(std::uint16_t);
}

Policy fit_bytes(const CacheShape& shape, const CacheOptions& options, std::size_t tokens,
                 bool strict) {
  const Policy& policy = options.policy;
  if (!bytes_are_entries(policy)) return policy;
  constexpr std::size_t kAll = std::numeric_limits<Position>::max();
  if (tokens == 0 && options.protocol == Protocol::prefill) return with_entries(policy, kAll);
  const MemorySize size = policy.memory("bytes");
  require(tokens > 0 || !size.needs_length(),
          "method {}: a stream of unknown length has no share; say how many bytes: bytes=256M",
          policy.to_string());
  const std::size_t allowed = size.bytes(tokens, exact_bf16_bytes(shape, tokens));
  const std::size_t fewest = least_entries(policy, options.protocol);
  // The most entries of a text of `length` tokens, 0: without end. 0: not even the fewest fit.
  const auto most = [&](std::size_t length) -> std::size_t {
    Sizes sizes(shape, options, length);
    const std::size_t heads = shape.layers * shape.kv_heads;
    std::size_t low = fewest;
    std::size_t high = length > 0 ? std::max(length, low) : std::min(kAll, low + allowed / heads);
    if (sizes.with(high) <= allowed) return high;
    if (sizes.with(low) > allowed) return 0;
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (sizes.with(middle) <= allowed ? low : high) = middle;
    }
    return low;
  };
  std::size_t entries = most(tokens);
  if (entries == 0 && size.unit == MemorySize::Unit::share && !strict) {
    entries = std::max(tokens, fewest);
  }
  require(
      entries > 0,
      "method {}: {} bytes for {} tokens, but the {} entries of a head that it keeps in any case "
      "take {}; give more memory, or a smaller sink= or window=",
      policy.to_string(), allowed, tokens, fewest, Sizes(shape, options, tokens).with(fewest));
  // All fit; what comes later may take the rest.
  const bool slides = options.protocol == Protocol::stream || !policy.keeps_generated();
  if (entries == tokens && slides) entries = std::max(entries, most(0));
  return with_entries(policy, entries);
}

}  // namespace ballast
