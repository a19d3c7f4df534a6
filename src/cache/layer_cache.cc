#include "cache/layer_cache.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/global/global_budget.h"
#include "cache/global/replay_scores.h"
#include "cache/head_elements.h"
#include "cache/head_observed.h"
#include "cache/joined.h"
#include "methods/adaptive.h"
#include "methods/entry_budget.h"

namespace ballast {
namespace {

/// From this many multiplications on, threads save more than their start costs.
constexpr std::size_t kParallelFrom = std::size_t{1} << 16;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
/// Queries for which the kernels read an entry once.
constexpr std::size_t kSharedQueries = 4;

}  // namespace

LayerCache::LayerCache(const CacheShape& shape, const CacheOptions& options, const Policy* counted,
                       std::size_t layer, SharedState* shared, RotaryTable* rotations,
                       const GlobalBudget* global, bool reserve)
    : shape_(shape),
      options_(options),
      layer_(layer),
      needs_(options.policy.needs()),
      global_(global),
      attention_(shape, options, layer, rotations),
      heads_(shape.kv_heads) {
  const bool stream = options.protocol == Protocol::stream;
  // In prefill the prompt's length decides; asking now reports an impossible budget early.
  if (counted != nullptr) {
    budget_ = with_first(
        counted->budget(
            stream ? options.expected_tokens : std::max<std::size_t>(1, options.expected_tokens),
            options.protocol, static_cast<int>(layer), static_cast<int>(shape.layers)),
        options.key_type, options.value_type);
  }
  rows_ = options.expected_tokens;
  if (works_in_chunks()) {
    rows_ = std::min(rows_, global_->exact_limit());
  } else if (stream && room() != kUnlimited) {
    rows_ = rows_ == 0 ? budget_.total() : std::min(rows_, budget_.total());
  }
  if (!reserve) rows_ = 0;
  as_read_ = is_low_bit(options.key_type) || is_low_bit(options.value_type);
  const std::size_t at_first =
      as_read_ && !reads_first() ? std::min(rows_, kFirstTokens + kMeanTokens) : rows_;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    SummarySetup& setup = heads_[h].setup;
    setup.policy = options.policy;
    setup.protocol = options.protocol;
    setup.step = budget_.step;
    setup.key_dim = shape.key_dim;
    setup.value_dim = shape.value_dim;
    setup.key_type = options.key_type;
    setup.value_type = options.value_type;
    setup.logits = attention_.logits();
    setup.random = {options.seed, static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(h)};
    setup.layers = static_cast<int>(shape.layers);
    setup.shared = shared;
    setup.queries_per_kv_head = shape.queries_per_kv_head;
    setup.asks_positions = asks_positions(shape);
    heads_[h].window = Window(setup, at_first, accumulates(), as_read_);
    QueryMoments moments;
    if (watches_moments()) {
      moments = QueryMoments(shape.queries_per_kv_head, shape.key_dim, attention_.rotary());
    }
    heads_[h].queries = QueryMemory(std::max(options.policy.observed(), options.recording.queries),
                                    shape.queries_per_kv_head, shape.key_dim, std::move(moments));
  }
}

bool LayerCache::reads_first() const { return options_.recording.replay != ReplayScore::none; }

void LayerCache::encode() {
  if (!as_read_) return;
  as_read_ = false;
  rounded_ = std::min(tokens(), kFirstTokens + kMeanTokens);
  const std::size_t room = loaded_ ? 0 : rows_;
  parallel_for(heads_.size(),
               [&](std::size_t h) { heads_[h].encode(room, now(), attention_.rotary()); });
}

bool LayerCache::works_in_chunks() const { return global_ != nullptr && global_->streams(); }

std::size_t LayerCache::chunk_room() const {
  if (!works_in_chunks()) return kUnlimited;
  const std::size_t most = state_ == State::whole ? global_->exact_limit() : global_->chunk();
  return most - std::min(most, chunk_tokens());
}

std::size_t LayerCache::room() const {
  const Policy& policy = options_.policy;
  const bool stream = options_.protocol == Protocol::stream;
  if (policy.info().window_policy == WindowPolicy::all || state_ == State::growing ||
      works_in_chunks()) {
    return kUnlimited;
  }
  if (state_ == State::sliding) return budget_.window + budget_.step - heads_[0].window.size();
  if (!stream && (!prompt_ended_ || policy.keeps_generated())) return kUnlimited;
  return budget_.total() - std::min(budget_.total(), tokens());
}

void LayerCache::forward(const HeadsView& keys, const HeadsView& values, const HeadsView& queries,
                         const MutableHeadsView& out) {
  const PoolScope scope(options_.pool.get());
  for (std::size_t done = 0; done < keys.tokens;) {
    std::size_t count = std::min(room(), keys.tokens - done);
    if (count == 0) {
      make_room();
      continue;
    }
    if (as_read_ && tokens() < encode_at()) count = std::min(count, encode_at() - tokens());
    // Attention sums grow token by token: they must not depend on how a text is cut into calls.
    if (accumulates() && state_ == State::sliding) count = 1;
    const bool asked = queries.tokens != 0;
    extend(keys.slice(done, count), values.slice(done, count),
           asked ? queries.slice(done, count) : queries, asked ? out.slice(done, count) : out);
    done += count;
    if (tokens() >= encode_at() && !reads_first()) encode();
  }
}

bool LayerCache::parallel(std::size_t tokens) const {
  return tokens * shape_.queries_per_kv_head * all_entries() *
             (shape_.key_dim + shape_.value_dim) >=
         kParallelFrom;
}

void LayerCache::make_room() {
  if (state_ == State::whole) return summarize();
  parallel_for(heads_.size(), [&](std::size_t h) {
    heads_[h].absorb_oldest(budget_.step, now(),
                            HeadObserved(attention_, h, heads_[h], tokens(), options_));
  });
}

void LayerCache::finish_prompt(const Policy& counted) {
  require(!prompt_ended_, "layer {}: the prompt was already finished", layer_);
  const PoolScope scope(options_.pool.get());
  prompt_ended_ = true;
  prompt_tokens_ = tokens();
  // A budget in bytes counts every row at its type.
  if (tokens() >= encode_at() || options_.policy.info().window_policy != WindowPolicy::all)
    encode();
  if (options_.protocol == Protocol::stream) return;
  budget_ = with_first(counted.budget(tokens(), Protocol::prefill, static_cast<int>(layer_),
                                      static_cast<int>(shape_.layers)),
                       options_.key_type, options_.value_type);
  if (options_.policy.info().window_policy != WindowPolicy::all && tokens() > budget_.total())
    summarize();
}

void LayerCache::end_chunk(std::span<const EntryTiers> tiers) {
  const PoolScope scope(options_.pool.get());
  parallel_for(heads_.size(),
               [&](std::size_t h) { heads_[h].end_chunk(tiers[h], now(), attention_.rotary()); });
  budget_ = {};
  for (const HeadCache& head : heads_) {
    budget_.summary = std::max(budget_.summary, head.summary->entries());
  }
  state_ = State::growing;
  skip();
}

void LayerCache::skip() {
  const bool divided = state_ != State::whole && works_in_chunks();
  attention_.skip(divided ? global_->out_of_reach(tokens() - std::min(tokens(), chunk_tokens()))
                          : 0);
}

void LayerCache::finish_prompt(std::span<const std::vector<std::uint8_t>> tiers,
                               std::span<const std::size_t> means) {
  require(!prompt_ended_, "layer {}: the prompt was already finished", layer_);
  const PoolScope scope(options_.pool.get());
  prompt_ended_ = true;
  prompt_tokens_ = tokens();
  if (tiers.empty()) return;
  const std::size_t later = later_room();
  budget_ = {};
  parallel_for(heads_.size(), [&](std::size_t h) {
    heads_[h].summarize(tiers[h], means[h], later, now(), attention_.rotary());
  });
  for (const HeadCache& head : heads_) {
    budget_.summary = std::max(budget_.summary, head.summary->entries());
  }
  for (HeadCache& head : heads_) head.setup.capacity = head.summary->entries();
  state_ = State::growing;
}

void LayerCache::copy_prompt(const LayerCache& other) {
  require(!other.prompt_ended_, "layer {}: its prompt is finished, it cannot be forked", layer_);
  require((!accumulates() || other.accumulates()) &&
              heads_[0].queries.most() <= other.heads_[0].queries.most(),
          "layer {}: {} watches attention that the cache has not noted", layer_,
          options_.policy.info().name);
  require(!watches_moments() || other.watches_moments(),
          "layer {}: {} watches queries that the cache has not noted", layer_,
          options_.policy.info().name);
  tokens_ = other.tokens();
  loaded_ = other.loaded_;
  as_read_ = other.as_read_;
  rounded_ = other.rounded_;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    heads_[h].copy_prompt(other.heads_[h], accumulates(), as_read_);
    heads_[h].queries.copy_prompt(other.heads_[h].queries, tokens());
  }
}

void LayerCache::copy(const LayerCache& other) {
  state_ = other.state_;
  as_read_ = other.as_read_;
  rounded_ = other.rounded_;
  prompt_ended_ = other.prompt_ended_;
  prompt_tokens_ = other.prompt_tokens_.load();
  tokens_ = other.tokens();
  loaded_ = other.loaded_;
  budget_ = other.budget_;
  attention_.copy(other.attention_);
  // Rows that stay in the window, and a summary that takes in nothing more, are shared.
  const bool all = options_.policy.info().window_policy == WindowPolicy::all;
  const bool shares = prompt_ended_ && !works_in_chunks() && (all || state_ == State::growing);
  const bool same = shares && !all && !accumulates() && heads_[0].setup.shared == nullptr;
  for (std::size_t h = 0; h < heads_.size(); ++h)
    heads_[h].copy(other.heads_[h], state_ == State::sliding, as_read_, shares, same);
}

void LayerCache::join(const JoinedDocuments& documents) {
  attention_.join(documents);
  tokens_ = documents.tokens();
  prompt_tokens_ = tokens();
  prompt_ended_ = true;
}

void LayerCache::reserve(std::size_t count) {
  if (state_ == State::sliding || count <= tokens()) return;
  // New tokens stay in the window as long as the options allow.
  std::size_t more = std::min({room(), chunk_room(), count - tokens()});
  if (as_read_ && !reads_first()) {
    rows_ = std::max(rows_, tokens() + more);
    more = std::min(more, encode_at() - std::min(encode_at(), tokens()));
  }
  for (HeadCache& head : heads_) head.window.reserve_exactly(more);
}

void LayerCache::drop_room() {
  for (HeadCache& head : heads_)
    if (state_ != State::sliding) head.window.drop_room();
}

std::size_t LayerCache::later_room() const {
  const std::size_t expected = options_.expected_tokens;
  const std::size_t later = expected > tokens() ? expected - tokens() : 0;
  return loaded_ ? std::min(later, tokens()) : later;
}

void LayerCache::summarize() {
  encode();
  const bool slides = budget_.step > 0;
  const std::size_t room = budget_.window + (slides ? budget_.step : later_room());
  if (accumulates() && needs_.whole_layer) {
    std::vector<std::vector<float>> attention_sums;
    for (HeadCache& head : heads_) {
      attention_sums.emplace_back(head.window.attention_sums().begin(),
                                  head.window.attention_sums().end());
    }
    add_up(attention_sums);
    for (HeadCache& head : heads_)
      std::ranges::copy(attention_sums[0], head.window.attention_sums().begin());
  }
  std::vector<HeadObserved> observed;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    observed.emplace_back(attention_, h, heads_[h], tokens(), options_);
  }
  const std::vector<std::size_t> capacities = this->capacities(observed);
  parallel_for(heads_.size(), [&](std::size_t h) {
    HeadCache& head = heads_[h];
    if (options_.expected_tokens > budget_.sink + budget_.window) {
      head.setup.tokens = options_.expected_tokens - budget_.sink - budget_.window;
    }
    Budget budget = budget_;
    budget.summary = capacities[h];
    head.summarize(budget, room, now(), observed[h]);
  });
  state_ = slides ? State::sliding : State::growing;
  if (state_ == State::sliding) return;
  // Nothing is chosen any more.
  for (HeadCache& head : heads_) head.queries.forget_moments();
}

bool LayerCache::adapts() const {
  return options_.protocol == Protocol::prefill && has_adaptive_heads(options_.policy);
}

std::vector<std::size_t> LayerCache::capacities(std::span<const HeadObserved> observed) const {
  if (!adapts()) return std::vector<std::size_t>(heads_.size(), budget_.summary);
  std::vector<std::vector<float>> scores(heads_.size());
  parallel_for(heads_.size(),
               [&](std::size_t h) { scores[h] = heads_[h].scores(budget_, now(), observed[h]); });
  return adaptive_budgets(scores, budget_.summary, options_.policy.real("floor"));
}

void LayerCache::add_up(std::vector<std::vector<float>>& attention_sums) {
  for (std::size_t h = 1; h < attention_sums.size(); ++h) {
    for (std::size_t i = 0; i < attention_sums[0].size(); ++i)
      attention_sums[0][i] += attention_sums[h][i];
  }
  for (std::size_t h = 1; h < attention_sums.size(); ++h) attention_sums[h] = attention_sums[0];
}

void LayerCache::extend(const HeadsView& keys, const HeadsView& values, const HeadsView& queries,
                        const MutableHeadsView& out) {
  std::vector<std::vector<float>> attention_sums(accumulates() ? heads_.size() : 0);
  tokens_ += keys.tokens;
  const std::size_t room = chunk_room();
  const std::size_t most = room == kUnlimited ? room : chunk_tokens() + room;
  const auto take = [&](std::size_t h) {
    HeadCache& head = heads_[h];
    if (works_in_chunks()) {
      head.window.reserve(keys.tokens, most);
    } else if (state_ != State::sliding) {
      head.window.reserve(keys.tokens);
    }
    float key[kMaxHeadDim], value[kMaxHeadDim];
    for (std::size_t t = 0; t < keys.tokens; ++t)
      head.window.push(read_head(keys, t, h, key), read_head(values, t, h, value),
                       static_cast<Position>(tokens() - keys.tokens + t));
    if (queries.tokens > 0) head.queries.add(queries, h, tokens() - queries.tokens);
  };
  const std::size_t rows = queries.tokens * shape_.queries_per_kv_head;
  const std::size_t parts = parts_of_heads(queries.tokens);
  if (parts == 1) {
    const auto attend = [&](std::size_t h) {
      take(h);
      if (rows == 0) return;
      std::span<float> sums;
      if (accumulates() && state_ == State::whole) {
        sums = heads_[h].window.attention_sums();
      } else if (accumulates()) {
        sums = attention_sums[h] = std::vector<float>(heads_[h].entries(), 0.0f);
      }
      attention_.answer(h, heads_[h], tokens(), queries, 0, rows, out, sums);
    };
    parallel_for(heads_.size(), attend, parallel(keys.tokens));
  } else {
    for (std::size_t h = 0; h < heads_.size(); ++h) take(h);
    parallel_for(heads_.size() * parts, [&](std::size_t i) {
      const std::size_t part = i % parts, tiles = (rows + kSharedQueries - 1) / kSharedQueries;
      const std::size_t begin = tiles * part / parts * kSharedQueries;
      const std::size_t end = std::min(tiles * (part + 1) / parts * kSharedQueries, rows);
      attention_.answer(i / parts, heads_[i / parts], tokens(), queries, begin, end, out, {});
    });
  }
  if (attention_sums.empty() || state_ == State::whole) return;  // whole: added in place
  if (needs_.whole_layer) add_up(attention_sums);
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    HeadCache& head = heads_[h];
    const std::size_t middle = head.summary ? head.summary->entries() : 0;
    const std::span<const float> attention_sum = attention_sums[h];
    if (head.summary) head.summary->observe(attention_sum.subspan(head.ahead(), middle));
    head.window.add_attention_sum(attention_sum.subspan(head.ahead() + middle));
  }
}

std::size_t LayerCache::parts_of_heads(std::size_t tokens) const {
  if (tokens != 1 || accumulates() || attention_.rolls() || !parallel(tokens)) return 1;
  // Each part reads the entries: it is worth it from half more than a thread's share on.
  const std::size_t all = all_entries();
  const std::size_t wanted = (2 * entries() * loop_threads() + all) / (2 * all);
  const std::size_t possible = (shape_.queries_per_kv_head + kSharedQueries - 1) / kSharedQueries;
  return std::clamp<std::size_t>(wanted, 1, possible);
}

void LayerCache::check_truncate(std::size_t count) const {
  require(count <= tokens(), "layer {} has {} tokens and cannot be truncated to {}", layer_,
          tokens(), count);
  const std::size_t documents = attention_.documents() ? attention_.documents()->tokens() : 0;
  require(count >= documents,
          "layer {}: the {} tokens of joined documents stay; the cache cannot be truncated to {}",
          layer_, documents, count);
  if (count == tokens()) return;
  const std::string_view method = options_.policy.info().name;
  require(
      state_ != State::sliding,
      "layer {}: {} has let tokens leave the window, so none can be taken back; clone() the cache "
      "before tokens that may be",
      layer_, method);
  if (state_ == State::growing) {
    const std::size_t oldest = tokens() - (heads_[0].window.size() - budget_.window);
    require(
        count >= oldest,
        "layer {}: {} has summarised its prompt at {} tokens, the cache cannot be truncated to {}; "
        "clone() it before finish_prompt()",
        layer_, method, oldest, count);
  }
  require(count >= rounded_,
          "layer {}: rows of few bits are rounded about the mean of the first {} tokens, the cache "
          "cannot be truncated to {}; clone() it before token {}",
          layer_, rounded_, count, rounded_);
  const std::size_t remembered = heads_[0].queries.most();
  require(!accumulates() && !watches_moments() && (remembered == 0 || tokens() <= remembered),
          "layer {}: the attention statistics for {} hold the queries of the tokens after {}; "
          "clone() the cache before these",
          layer_, options_.recording.any() ? "forks" : method, count);
}

void LayerCache::truncate(std::size_t count) {
  for (HeadCache& head : heads_) {
    head.window.drop_newest(tokens() - count);
    head.queries.truncate(count, tokens());
  }
  tokens_ = count;
}

std::size_t LayerCache::entries(std::size_t h) const {
  const JoinedDocuments* const documents = attention_.documents();
  return heads_[h].entries() + (documents ? documents->entries(layer_, h) : 0);
}

std::size_t LayerCache::entries() const {
  std::size_t most = 0;
  for (std::size_t h = 0; h < heads_.size(); ++h) most = std::max(most, entries(h));
  return most;
}

std::size_t LayerCache::all_entries() const {
  std::size_t sum = 0;
  for (std::size_t h = 0; h < heads_.size(); ++h) sum += entries(h);
  return sum;
}

CacheBytes LayerCache::bytes() const {
  CacheBytes bytes;
  for (const HeadCache& head : heads_) bytes += head.bytes();
  return bytes;
}

void LayerCache::list(std::vector<HeldMemory>& out) const {
  for (const HeadCache& head : heads_) {
    head.window.list(out);
    if (head.summary) out.push_back({head.summary.get(), head.summary->bytes()});
  }
}

std::vector<Segment> LayerCache::segments(std::size_t head) const {
  std::vector<Segment> out;
  heads_[head].segments(now(), out);
  return out;
}

std::vector<KeptEntry> LayerCache::kept(std::size_t head) const { return heads_[head].kept(now()); }

}  // namespace ballast
