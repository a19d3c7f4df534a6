#include "cache/cache_size.h"

#include <algorithm>
#include <vector>

#include "attention/rotary.h"
#include "ballast/summary.h"
#include "cache/byte_budget.h"
#include "methods/query_moments.h"
#include "methods/replay.h"
#include "storage/low_bits.h"

namespace ballast {
namespace {

/// Scratch bytes of a method for each token that it summarises.
constexpr std::size_t kWorking = 24;

std::size_t moments_bytes(const CacheShape& shape) {
  // They take their memory at the first query.
  QueryMoments moments(shape.queries_per_kv_head, shape.key_dim, shape.rotary);
  const std::vector<float> query(shape.key_dim, 0.0f);
  for (std::size_t g = 0; g < shape.queries_per_kv_head; ++g) {
    moments.add(g, query, QueryMoments::kSkipped);
  }
  return moments.bytes();
}

}  // namespace

CacheSize::CacheSize(const CacheShape& shape, const CacheOptions& options)
    : shape_(shape), options_(options) {
  const Policy& policy = options_.policy;
  set_types(policy, options_.key_type, options_.value_type);
  row_ = stored_row_bytes(options_.key_type, shape.key_dim) +
         stored_row_bytes(options_.value_type, shape.value_dim);
  window_row_ = row_;
  const Needs stats = policy.needs();
  if (stats.attention_sums || options_.recording.attention_sum) {
    window_row_ += sizeof(float);
  }
  if (stats.replay != ReplayScore::none) {  // and |W_O^T v| of each query head
    scores_ = (1 + (stats.reads_again() ? shape.queries_per_kv_head : 0)) * sizeof(float);
  }
  queries_ = std::max(policy.observed(), options_.recording.queries) * shape.queries_per_kv_head *
             shape.key_dim * sizeof(float);
  if (stats.query_moments || options_.recording.query_moments) moments_ = moments_bytes(shape);
  if (policy.info().make_shared != nullptr) {
    shared_ = policy.info().make_shared(policy);
    bounded_ = dynamic_cast<const BoundedState*>(shared_.get());
  }
}

CacheSize::~CacheSize() = default;

/// Of one head: means, and what the first tokens take more than others.
std::size_t CacheSize::low_bits(std::size_t first) const {
  return low_bit_bytes(options_.key_type, shape_.key_dim, first) +
         low_bit_bytes(options_.value_type, shape_.value_dim, first);
}

/// Of one head that holds every token.
std::size_t CacheSize::rows(std::size_t tokens) const {
  return tokens * window_row_ + low_bits(tokens) + queries_ + moments_;
}

std::size_t CacheSize::rotations(std::size_t entries) const {
  return options_.positions == Positions::rolling
             ? RotaryTable::bytes_for(entries + 1, shape_.rotary.frequencies.size())
             : 0;
}

std::size_t CacheSize::exact(std::size_t tokens) const {
  return shape_.layers * shape_.kv_heads * (tokens * row_ + low_bits(tokens)) + rotations(tokens) +
         recurrent();
}

/// Of the recurrent layers: their states and those kept.
std::size_t CacheSize::recurrent() const {
  std::size_t elements = 0;
  for (std::size_t size : shape_.recurrent) elements += size;
  return 2 * elements * sizeof(float);
}

/// Of one head's summary. It takes its memory when it is made, so one is made.
std::size_t CacheSize::summary(const Policy& policy, const Budget& budget, std::size_t step,
                               std::size_t layer, std::size_t tokens) {
  // Layers that share state may hold different things in as many entries.
  const std::pair key{budget.summary, shared_ == nullptr ? 0 : layer};
  const auto known = summaries_.find(key);
  if (known != summaries_.end()) return known->second;
  SummarySetup setup;
  setup.policy = policy;
  setup.protocol = options_.protocol;
  setup.capacity = budget.summary;
  setup.sink = budget.sink;
  setup.step = shared_ == nullptr ? step : 0;
  const std::size_t apart = budget.sink + budget.window;
  const std::size_t expected = std::max(options_.expected_tokens, tokens);
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
  return summaries_[key] = summary ? summary->bytes() : 0;
}

/// Of one head once its text of `tokens` tokens is summarised. `refuse`: throws the Error that its
/// steps would meet later; a search tries budgets that are refused.
std::size_t CacheSize::summarised(const Policy& policy, const Budget& budget, std::size_t layer,
                                  std::size_t tokens, bool refuse) {
  const std::size_t first = tokens == 0 ? budget.sink : std::min(budget.sink, tokens);
  return low_bits(first) + budget.sink * row_ + (budget.window + budget.step) * window_row_ +
         summary(policy, budget, refuse ? budget.step : 0, layer, tokens) + queries_ +
         (budget.step > 0 ? moments_ : 0);
}

std::size_t CacheSize::with_entries(std::size_t entries, std::size_t tokens) {
  const Policy policy = ballast::with_entries(options_.policy, entries);
  const auto layers = static_cast<int>(shape_.layers);
  std::size_t bytes = 0, most = 0, in_summaries = 0, middle = tokens;
  for (int l = 0; l < layers; ++l) {
    const Budget budget = with_first(policy.budget(tokens, options_.protocol, l, layers),
                                     options_.key_type, options_.value_type);
    if (tokens > 0 && tokens <= budget.total()) {
      bytes += shape_.kv_heads * rows(tokens);
      most = std::max(most, tokens);
    } else {
      bytes +=
          shape_.kv_heads * summarised(policy, budget, static_cast<std::size_t>(l), tokens, false);
      in_summaries += budget.summary;
      middle = tokens - std::min(tokens, budget.sink + budget.window);
      most = std::max(most, budget.total());
    }
  }
  if (bounded_ != nullptr) {
    bytes += bounded_->most_bytes(options_.protocol, shape_.layers, shape_.kv_heads, in_summaries,
                                  middle);
  }
  // In prefill the whole text had places.
  return bytes + rotations(options_.protocol == Protocol::prefill ? std::max(most, tokens) : most);
}

CacheSize::Need CacheSize::need(std::size_t prompt, std::size_t after) {
  const bool stream = options_.protocol == Protocol::stream;
  const std::size_t all = prompt + after;
  const std::size_t text = !stream                        ? prompt
                           : options_.expected_tokens > 0 ? options_.expected_tokens
                                                          : all;
  const std::size_t heads = shape_.kv_heads;
  const Policy policy = fit_bytes(shape_, options_, stream ? options_.expected_tokens : prompt);
  const bool grows = !stream && policy.keeps_generated();
  Need out;
  if (policy.info().global_budget) {
    const std::size_t budget = global_budget_bytes(shape_, options_, text);
    const std::size_t whole = shape_.layers * heads * rows(all);
    const std::size_t reach = reach_of(policy);
    out.entries = reach > 0 ? std::min(all, reach) : all;
    if (stream) {  // the budget, the chunk and its scores
      const auto chunk = static_cast<std::size_t>(policy.integer("chunk"));
      out.most = std::min(whole, budget + shape_.layers * heads * rows(chunk));
      out.kept = std::min(whole, budget);
      out.summarising = chunk * scores_;
    } else {
      out.most = whole + shape_.layers * heads * prompt * scores_;
      out.kept = std::min(whole, budget + shape_.layers * heads * rows(after));
    }
  } else {
    std::size_t in_summaries = 0, middle = 0;
    for (std::size_t l = 0; l < shape_.layers; ++l) {
      const Budget budget =
          with_first(policy.budget(std::max<std::size_t>(text, 1), options_.protocol,
                                   static_cast<int>(l), static_cast<int>(shape_.layers)),
                     options_.key_type, options_.value_type);
      const std::size_t total = budget.total();
      if (policy.info().window_policy == WindowPolicy::all || (grows ? prompt : all) <= total) {
        out.entries = all;
        out.most += heads * rows(all);
        out.kept += heads * rows(all);
        continue;
      }
      const std::size_t head =
          summarised(policy, budget, l, text, true) + (grows ? after * window_row_ : 0);
      const std::size_t whole = stream ? total : all;
      out.entries = std::max(out.entries, whole);
      out.kept += heads * head;
      out.most += heads * std::max(head, rows(whole));
      out.summarising = std::max(out.summarising, head + (stream ? total : prompt) * kWorking);
      in_summaries += budget.summary;
      middle = text - std::min(text, budget.sink + budget.window);
    }
    if (bounded_ != nullptr && in_summaries > 0) {
      const std::size_t shared =
          bounded_->most_bytes(options_.protocol, shape_.layers, heads, in_summaries, middle);
      out.kept += shared;
      out.most += shared;
    }
  }
  // Until the mean of rows of few bits is known, they are held as read.
  const std::size_t read = std::min(all, kFirstTokens + kMeanTokens);
  const std::size_t as_read_row = stored_row_bytes(as_read(options_.key_type), shape_.key_dim) +
                                  stored_row_bytes(as_read(options_.value_type), shape_.value_dim);
  out.most = std::max(out.most, shape_.layers * heads * (rows(read) + read * (as_read_row - row_)));
  out.most += rotations(out.entries) + recurrent();
  out.kept += rotations(out.entries) + recurrent();
  return out;
}

}  // namespace ballast
