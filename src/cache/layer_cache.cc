#include "cache/layer_cache.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/global/global_budget.h"
#include "cache/global/replay_scores.h"
#include "cache/head_elements.h"
#include "cache/joined.h"
#include "cache/rolling.h"
#include "methods/adaptive.h"
#include "methods/entry_budget.h"

namespace ballast {
namespace {

/// From this many multiplications on, threads save more than their start costs.
constexpr std::size_t kParallelFrom = std::size_t{1} << 16;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
/// Queries for which the kernels read an entry once.
constexpr std::size_t kSharedQueries = 4;

/// What a thread works in while it attends for a head. It is kept from call to call: at short
/// contexts an allocation costs as much as a block of entries.
struct Scratch {
  /// Rows packed at once, which bounds what a thread keeps.
  static constexpr std::size_t kRows = 1024;

  std::vector<Segment> segments;
  std::vector<Position> positions;
  std::vector<float> slopes, sinks;

  /// `queries` rows of key_dim elements and `outputs` of value_dim.
  void reserve(std::size_t queries, std::size_t key_dim, std::size_t outputs,
               std::size_t value_dim) {
    const std::size_t wanted = queries * key_dim + outputs * value_dim;
    if (wanted > size_) rows_ = allocate_aligned<float>(wanted);
    size_ = std::max(size_, wanted);
    packed = {rows_.get(), queries, key_dim};
    answers = {rows_.get() + queries * key_dim, outputs, value_dim};
  }
  MutableMatrix packed, answers;

 private:
  AlignedArray<float> rows_;
  std::size_t size_ = 0;
};

/// Where its first entry stands in the text.
Position first_position(const Segment& segment) {
  if (segment.first_position >= 0) return segment.first_position;
  return segment.positions != nullptr ? segment.positions[0] : segment.keys.position(0);
}

Scratch& scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace

LayerCache::LayerCache(const CacheShape& shape, const CacheOptions& options, const Policy* counted,
                       std::size_t layer, SharedState* shared, RotaryTable* rotations,
                       const GlobalBudget* global, bool reserve)
    : shape_(shape),
      options_(options),
      layer_(layer),
      watch_(options.policy.attention_stats()),
      observed_(std::max(options.policy.observed(), options.recording.queries)),
      query_moments_(watch_.query_moments || options.recording.query_moments),
      rotations_(rotations),
      global_(global),
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
    setup.logits = logits();
    setup.random = {options.seed, static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(h)};
    setup.layers = static_cast<int>(shape.layers);
    setup.shared = shared;
    setup.queries_per_kv_head = shape.queries_per_kv_head;
    setup.asks_positions = asks_positions(shape);
    setup.value_norms = &options.value_norms;
    if (query_moments_) {
      // With rolling positions queries come as they were before rotation.
      heads_[h].query_moments = QueryMoments(shape.queries_per_kv_head, shape.key_dim, rotary());
      setup.query_moments = &heads_[h].query_moments;
    }
    heads_[h].window = Window(setup, at_first, accumulates(), as_read_);
    if (observed_ > 0)
      heads_[h].recent_queries = Matrix(observed_ * shape.queries_per_kv_head, shape.key_dim);
  }
}

Logits LayerCache::logits() const {
  Logits logits = shape_.logits;
  if (!shape_.sliding_windows.empty()) logits.sliding_window = shape_.sliding_windows[layer_];
  return logits;
}

const Rotary& LayerCache::rotary() const {
  // With rolling positions keys and queries come as they were before rotation.
  static const Rotary none;
  return rotations_ == nullptr ? shape_.rotary_of(layer_) : none;
}

bool LayerCache::reads_first() const { return options_.recording.replay != ReplayScore::none; }

void LayerCache::encode() {
  if (!as_read_) return;
  as_read_ = false;
  rounded_ = std::min(tokens(), kFirstTokens + kMeanTokens);
  const std::size_t room = loaded_ ? 0 : rows_;
  parallel_for(heads_.size(), [&](std::size_t h) { heads_[h].encode(room, now(), rotary()); });
}

std::span<const float> LayerCache::slopes(std::size_t h) const {
  if (shape_.alibi_slopes.empty()) return {};
  return {shape_.alibi_slopes.data() + h * shape_.queries_per_kv_head, shape_.queries_per_kv_head};
}

std::span<const float> LayerCache::sinks(std::size_t h) const {
  if (shape_.sink_logits.empty()) return {};
  const std::size_t group = shape_.queries_per_kv_head;
  return {shape_.sink_logits.data() + (layer_ * heads_.size() + h) * group, group};
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
  const auto latest = recent_attention_sums();
  const std::vector<Latest> asked = this->asked();
  parallel_for(heads_.size(), [&](std::size_t h) {
    heads_[h].absorb_oldest(budget_.step, now(), latest[h],
                            {asked[h].queries.view(), asked[h].positions});
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
               [&](std::size_t h) { heads_[h].end_chunk(tiers[h], now(), rotary()); });
  budget_ = {};
  for (const HeadCache& head : heads_) {
    budget_.summary = std::max(budget_.summary, head.summary->entries());
  }
  state_ = State::growing;
  skip();
}

void LayerCache::skip() {
  const Position skipped =
      state_ == State::whole || !works_in_chunks()
          ? 0
          : global_->out_of_reach(tokens() - std::min(tokens(), chunk_tokens()));
  if (skipped != skipped_.offset()) skipped_ = TurnBack(rotary(), skipped);
}

void LayerCache::finish_prompt(std::span<const std::vector<std::uint8_t>> tiers,
                               std::span<const std::size_t> samples,
                               std::span<const std::shared_ptr<ReplayQueries>> queries) {
  require(!prompt_ended_, "layer {}: the prompt was already finished", layer_);
  const PoolScope scope(options_.pool.get());
  prompt_ended_ = true;
  prompt_tokens_ = tokens();
  if (tiers.empty()) return;
  const std::size_t later = later_room();
  budget_ = {};
  parallel_for(heads_.size(), [&](std::size_t h) {
    heads_[h].summarize(tiers[h], samples[h], queries[h].get(), later, now(), rotary());
  });
  for (const HeadCache& head : heads_) {
    budget_.summary = std::max(budget_.summary, head.summary->entries());
  }
  for (HeadCache& head : heads_) head.setup.capacity = head.summary->entries();
  state_ = State::growing;
}

void LayerCache::copy_prompt(const LayerCache& other) {
  require(!other.prompt_ended_, "layer {}: its prompt is finished, it cannot be forked", layer_);
  require((!accumulates() || other.accumulates()) && observed_ <= other.observed_,
          "layer {}: {} watches attention that the cache has not noted", layer_,
          options_.policy.info().name);
  require(!query_moments_ || other.query_moments_,
          "layer {}: {} watches queries that the cache has not noted", layer_,
          options_.policy.info().name);
  tokens_ = other.tokens();
  loaded_ = other.loaded_;
  as_read_ = other.as_read_;
  rounded_ = other.rounded_;
  const std::size_t group = shape_.queries_per_kv_head;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    const HeadCache& from = other.heads_[h];
    if (query_moments_) heads_[h].query_moments = from.query_moments;
    heads_[h].copy_prompt(from, accumulates(), as_read_);
    for (std::size_t t = tokens() - std::min(tokens(), observed_); t < tokens(); ++t) {
      for (std::size_t g = 0; g < group; ++g) {
        std::ranges::copy(from.recent_queries[t % other.observed_ * group + g],
                          heads_[h].recent_queries[t % observed_ * group + g].begin());
      }
    }
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
  joined_ = other.joined_;
  skipped_ = other.skipped_;
  for (std::size_t h = 0; h < heads_.size(); ++h)
    heads_[h].copy(other.heads_[h], state_ == State::sliding, as_read_);
}

void LayerCache::join(const JoinedDocuments& documents) {
  joined_ = &documents;
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

std::size_t LayerCache::later_room() const {
  const std::size_t expected = options_.expected_tokens;
  const std::size_t later = expected > tokens() ? expected - tokens() : 0;
  return loaded_ ? std::min(later, tokens()) : later;
}

void LayerCache::summarize() {
  encode();
  const bool slides = budget_.step > 0;
  const std::size_t room = budget_.window + (slides ? budget_.step : later_room());
  if (accumulates() && watch_.whole_layer) {
    std::vector<std::vector<float>> attention_sums;
    for (HeadCache& head : heads_) {
      attention_sums.emplace_back(head.window.attention_sums().begin(),
                                  head.window.attention_sums().end());
    }
    add_up(attention_sums);
    for (HeadCache& head : heads_)
      std::ranges::copy(attention_sums[0], head.window.attention_sums().begin());
  }
  const auto latest = recent_attention_sums();
  const std::vector<std::size_t> capacities = this->capacities(latest);
  const std::vector<Latest> asked = this->asked();
  parallel_for(heads_.size(), [&](std::size_t h) {
    HeadCache& head = heads_[h];
    if (options_.expected_tokens > budget_.sink + budget_.window) {
      head.setup.tokens = options_.expected_tokens - budget_.sink - budget_.window;
    }
    Budget budget = budget_;
    budget.summary = capacities[h];
    head.summarize(budget, room, now(), latest[h], {asked[h].queries.view(), asked[h].positions});
  });
  state_ = slides ? State::sliding : State::growing;
  if (state_ == State::sliding) return;
  // Nothing is chosen any more.
  for (HeadCache& head : heads_) {
    head.query_moments = {};
    head.setup.query_moments = nullptr;
  }
}

bool LayerCache::adapts() const {
  return options_.protocol == Protocol::prefill && has_adaptive_heads(options_.policy);
}

std::vector<std::size_t> LayerCache::capacities(std::span<const std::vector<float>> latest) const {
  if (!adapts()) return std::vector<std::size_t>(heads_.size(), budget_.summary);
  std::vector<std::vector<float>> scores(heads_.size());
  parallel_for(heads_.size(),
               [&](std::size_t h) { scores[h] = heads_[h].scores(budget_, now(), latest[h]); });
  return adaptive_budgets(scores, budget_.summary, options_.policy.real("floor"));
}

void LayerCache::add_up(std::vector<std::vector<float>>& attention_sums) {
  for (std::size_t h = 1; h < attention_sums.size(); ++h) {
    for (std::size_t i = 0; i < attention_sums[0].size(); ++i)
      attention_sums[0][i] += attention_sums[h][i];
  }
  for (std::size_t h = 1; h < attention_sums.size(); ++h) attention_sums[h] = attention_sums[0];
}

LayerCache::Latest LayerCache::latest_queries(std::size_t h) const {
  const std::size_t seen = std::min(observed_, tokens());
  Latest latest{Matrix(seen * shape_.queries_per_kv_head, shape_.key_dim), {}, {}, {}};
  // Slot s of the ring holds the last token t with t mod observed = s.
  for (std::size_t s = 0; s < seen; ++s) {
    const std::size_t t = tokens() - 1 - (tokens() - 1 - s) % observed_;
    latest.positions.insert(latest.positions.end(), shape_.queries_per_kv_head,
                            static_cast<Position>(t));
    latest.slopes.insert(latest.slopes.end(), slopes(h).begin(), slopes(h).end());
    latest.sinks.insert(latest.sinks.end(), sinks(h).begin(), sinks(h).end());
  }
  std::copy_n(heads_[h].recent_queries.data(), latest.queries.rows() * latest.queries.cols(),
              latest.queries.data());
  return latest;
}

Queries LayerCache::Latest::rows(std::size_t first, std::size_t count) const {
  const auto part = [&](std::span<const float> all) {
    return all.empty() ? all : all.subspan(first, count);
  };
  return {queries.view().slice(first, count), std::span(positions).subspan(first, count),
          part(slopes), part(sinks)};
}

Matrix LayerCache::answer_latest(const LayerCache& other, std::size_t h) const {
  const Latest latest = other.latest_queries(h);
  Matrix out(latest.queries.rows(), shape_.value_dim);
  attend_entries(h, heads_[h], latest.rows(0, out.rows()), out.view(), {});
  return out;
}

Matrix LayerCache::latest_attention(std::size_t h, std::size_t most) const {
  const Latest latest = latest_queries(h);
  std::size_t entries = 0;
  for (const Segment& segment : segments(h)) entries += segment.keys.rows;
  Matrix out(std::min(latest.queries.rows(), most), entries), unused(1, shape_.value_dim);
  const std::size_t group = shape_.queries_per_kv_head, tokens = latest.queries.rows() / group;
  for (std::size_t r = 0; r < out.rows(); ++r) {
    // Of fewer, tokens evenly spaced, with each query head in its turn.
    const std::size_t q = r * tokens / out.rows() * group + r % group;
    attend_entries(h, heads_[h], latest.rows(q, 1), unused.view(), out[r]);
  }
  return out;
}

std::vector<std::vector<float>> LayerCache::recent_attention_sums() const {
  std::vector<std::vector<float>> attention_sums(heads_.size());
  if (observed_ == 0) return attention_sums;
  parallel_for(heads_.size(), [&](std::size_t h) {
    if (watch_.recent_score != nullptr) {
      attention_sums[h] = recent_scores(h);
      return;
    }
    const Latest latest = latest_queries(h);
    Matrix unused(latest.queries.rows(), shape_.value_dim);
    attention_sums[h].assign(heads_[h].entries(), 0.0f);
    attend_entries(h, heads_[h], latest.rows(0, unused.rows()), unused.view(), attention_sums[h]);
  });
  if (watch_.whole_layer) add_up(attention_sums);
  return attention_sums;
}

std::vector<LayerCache::Latest> LayerCache::asked() const {
  std::vector<Latest> out(heads_.size());
  for (std::size_t h = 0; watch_.queries && h < out.size(); ++h) out[h] = latest_queries(h);
  return out;
}

std::vector<float> LayerCache::recent_scores(std::size_t h) const {
  const Latest latest = latest_queries(h);
  Matrix values(heads_[h].entries(), shape_.value_dim), answer(1, shape_.value_dim);
  std::size_t entry = 0;
  for (const Segment& segment : segments(h)) {
    for (std::size_t i = 0; i < segment.values.rows; ++i) segment.values.decode(i, values[entry++]);
  }
  std::vector<float> out(values.rows());
  std::vector<double> sums(values.rows());
  for (std::size_t r = 0; r < latest.queries.rows(); ++r) {
    std::ranges::fill(out, 0.0f);
    attend_entries(h, heads_[h], latest.rows(r, 1), answer.view(), out);
    watch_.recent_score({out, answer[0], values.view()}, sums);
  }
  static constexpr double most = std::numeric_limits<float>::max();
  std::ranges::transform(sums, out.begin(),
                         [](double sum) { return static_cast<float>(std::min(sum, most)); });
  return out;
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
    float key[kMostHeadDim], value[kMostHeadDim];
    for (std::size_t t = 0; t < keys.tokens; ++t)
      head.window.push(read_head(keys, t, h, key), read_head(values, t, h, value),
                       static_cast<Position>(tokens() - keys.tokens + t));
    if (queries.tokens > 0) remember(head, h, queries);
  };
  const std::size_t rows = queries.tokens * shape_.queries_per_kv_head;
  const std::size_t parts = parts_of_heads(queries.tokens);
  if (parts == 1) {
    const auto attend = [&](std::size_t h) {
      take(h);
      if (rows == 0) return;
      attend_head(h, queries, 0, rows, out, attention_sums.empty() ? nullptr : &attention_sums[h]);
    };
    parallel_for(heads_.size(), attend, parallel(keys.tokens));
  } else {
    for (std::size_t h = 0; h < heads_.size(); ++h) take(h);
    parallel_for(heads_.size() * parts, [&](std::size_t i) {
      const std::size_t part = i % parts, tiles = (rows + kSharedQueries - 1) / kSharedQueries;
      const std::size_t begin = tiles * part / parts * kSharedQueries;
      const std::size_t end = std::min(tiles * (part + 1) / parts * kSharedQueries, rows);
      attend_head(i / parts, queries, begin, end, out, nullptr);
    });
  }
  if (attention_sums.empty() || state_ == State::whole) return;  // whole: added in place
  if (watch_.whole_layer) add_up(attention_sums);
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    HeadCache& head = heads_[h];
    const std::size_t middle = head.summary ? head.summary->entries() : 0;
    const std::span<const float> attention_sum = attention_sums[h];
    if (head.summary) head.summary->observe(attention_sum.subspan(head.ahead(), middle));
    head.window.add_attention_sum(attention_sum.subspan(head.ahead() + middle));
  }
}

std::size_t LayerCache::parts_of_heads(std::size_t tokens) const {
  if (tokens != 1 || accumulates() || rotations_ != nullptr || !parallel(tokens)) return 1;
  // Each part reads the entries: it is worth it from half more than a thread's share on.
  const std::size_t all = all_entries();
  const std::size_t wanted = (2 * entries() * loop_threads() + all) / (2 * all);
  const std::size_t possible = (shape_.queries_per_kv_head + kSharedQueries - 1) / kSharedQueries;
  return std::clamp<std::size_t>(wanted, 1, possible);
}

void LayerCache::remember(HeadCache& head, std::size_t h, const HeadsView& queries) const {
  const std::size_t group = shape_.queries_per_kv_head;
  const std::size_t first = tokens() - queries.tokens;
  float buffer[kMostHeadDim];
  for (std::size_t t = 0; head.query_moments.query_heads() > 0 && t < queries.tokens; ++t) {
    for (std::size_t g = 0; g < group; ++g) {
      head.query_moments.add(g, read_head(queries, t, h * group + g, buffer),
                             static_cast<Position>(first + t));
    }
  }
  if (observed_ == 0) return;
  for (std::size_t t = queries.tokens - std::min(queries.tokens, observed_); t < queries.tokens;
       ++t) {
    for (std::size_t g = 0; g < group; ++g) {
      std::ranges::copy(read_head(queries, t, h * group + g, buffer),
                        head.recent_queries[(first + t) % observed_ * group + g].begin());
    }
  }
}

// Rows begin .. end of the (token, query head) pairs. They are read and written where they lie if
// one stride reaches them all, and packed otherwise.
void LayerCache::attend_head(std::size_t h, const HeadsView& queries, std::size_t begin,
                             std::size_t end, const MutableHeadsView& out,
                             std::vector<float>* attention_sum) {
  HeadCache& head = heads_[h];
  const std::size_t group = shape_.queries_per_kv_head, first_head = h * group;
  const std::size_t rows = end - begin, first_token = tokens() - queries.tokens;
  std::span<float> attention_sums;
  if (attention_sum != nullptr && state_ != State::whole) {
    attention_sum->assign(head.entries(), 0.0f);
    attention_sums = *attention_sum;
  } else if (attention_sum != nullptr) {
    attention_sums = head.window.attention_sums();
  }
  Scratch& s = scratch();
  s.segments.clear();
  head.segments(now(), s.segments);
  std::optional<RolledEntries> rolled;
  if (rotations_ != nullptr) rolled.emplace(*rotations_, s.segments);
  const bool packs = rolled || !are_rows(queries, group), unpacks = !are_rows(out, group);
  const std::size_t together = packs || unpacks ? std::min(rows, Scratch::kRows) : rows;
  s.reserve(packs ? together : 0, shape_.key_dim, unpacks ? together : 0, shape_.value_dim);
  const std::span<const float> slopes = this->slopes(h), sinks = this->sinks(h);
  for (std::size_t first = begin; first < end; first += together) {
    const std::size_t count = std::min(together, end - first);
    s.positions.resize(count);
    s.slopes.resize(slopes.empty() ? 0 : count);
    s.sinks.resize(sinks.empty() ? 0 : count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t t = (first + i) / group, g = (first + i) % group;
      s.positions[i] = static_cast<Position>(first_token + t);
      if (!slopes.empty()) s.slopes[i] = slopes[g];
      if (!sinks.empty()) s.sinks[i] = sinks[g];
      if (!packs) continue;
      float* const row = s.packed.row(i);
      const std::span<const float> query = read_head(queries, t, first_head + g, row);
      if (query.data() != row) std::ranges::copy(query, row);
    }
    if (rolled) rolled->place(s.positions, s.packed.slice(0, count));
    const ConstMatrix asked =
        packs ? s.packed.slice(0, count)
              : rows_of<const float>(queries, first_head, group).slice(first, count);
    const MutableMatrix answers = unpacks
                                      ? s.answers.slice(0, count)
                                      : rows_of<float>(out, first_head, group).slice(first, count);
    attend_rows(h, {asked, s.positions, s.slopes, s.sinks}, s.segments, answers, attention_sums);
    for (std::size_t i = 0; unpacks && i < count; ++i)
      write_head(answers[i], out, (first + i) / group, first_head + (first + i) % group);
  }
}

void LayerCache::attend_rows(std::size_t h, const Queries& queries,
                             std::span<const Segment> segments, MutableMatrix out,
                             std::span<float> attention_sum) const {
  if (joined_ != nullptr) {
    require(attention_sum.empty(), "a joined cache does not say what its attention looks at");
    PartialAttention partial(queries.rows.rows, out.cols);
    joined_->attend(layer_, h, queries, logits(), partial);
    attend_partial(queries, segments, logits(), partial);
    partial.finish(out);
  } else if (skipped() > 0) {
    require(attention_sum.empty(),
            "a text beyond reach={} does not say what its attention looks at",
            options_.policy.integer("reach"));
    thread_local std::vector<Segment> first, later;
    first.clear();
    later.clear();
    const auto end = static_cast<Position>(options_.policy.integer("sink"));
    for (const Segment& segment : segments) {
      (first_position(segment) < end ? first : later).push_back(segment);
    }
    PartialAttention partial(queries.rows.rows, out.cols);
    skipped_.attend(queries, first, logits(), partial);
    attend_partial(queries, later, logits(), partial);
    partial.finish(out);
  } else if (attention_sum.empty()) {
    attend(queries, segments, logits(), out);
  } else {
    attend_with_attention_sum(queries, segments, logits(), out, attention_sum);
  }
}

void LayerCache::attend_entries(std::size_t h, const HeadCache& head, const Queries& queries,
                                MutableMatrix out, std::span<float> attention_sum) const {
  std::vector<Segment> segments;
  head.segments(now(), segments);
  if (rotations_ == nullptr) return attend_rows(h, queries, segments, out, attention_sum);
  const RolledEntries rolled(*rotations_, segments);
  Matrix rows(queries.rows.rows, queries.rows.cols);
  for (std::size_t r = 0; r < rows.rows(); ++r) std::ranges::copy(queries.rows[r], rows[r].begin());
  std::vector<Position> places(queries.positions.begin(), queries.positions.end());
  rolled.place(places, rows.view());
  attend_rows(h, {rows.view(), places, queries.alibi_slopes, queries.sink_logits}, segments, out,
              attention_sum);
}

void LayerCache::check_truncate(std::size_t count) const {
  require(count <= tokens(), "layer {} has {} tokens and cannot be truncated to {}", layer_,
          tokens(), count);
  require(joined_ == nullptr || count >= joined_->tokens(),
          "layer {}: the {} tokens of joined documents stay; the cache cannot be truncated to {}",
          layer_, joined_ == nullptr ? 0 : joined_->tokens(), count);
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
  require(!accumulates() && !query_moments_ && (observed_ == 0 || tokens() <= observed_),
          "layer {}: the attention statistics for {} hold the queries of the tokens after {}; "
          "clone() the cache before these",
          layer_, options_.recording.any() ? "forks" : method, count);
}

void LayerCache::truncate(std::size_t count) {
  const std::size_t group = shape_.queries_per_kv_head;
  for (HeadCache& head : heads_) {
    head.window.drop_newest(tokens() - count);
    for (std::size_t t = count; observed_ > 0 && t < tokens(); ++t) {
      for (std::size_t g = 0; g < group; ++g)
        std::ranges::fill(head.recent_queries[t % observed_ * group + g], 0.0f);
    }
  }
  tokens_ = count;
}

std::size_t LayerCache::entries() const {
  std::size_t most = 0;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    most = std::max(most, heads_[h].entries() + (joined_ ? joined_->entries(layer_, h) : 0));
  }
  return most;
}

std::size_t LayerCache::all_entries() const {
  std::size_t sum = 0;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    sum += heads_[h].entries() + (joined_ ? joined_->entries(layer_, h) : 0);
  }
  return sum;
}

CacheBytes LayerCache::bytes() const {
  CacheBytes bytes;
  for (const HeadCache& head : heads_) bytes += head.bytes();
  return bytes;
}

std::vector<Segment> LayerCache::segments(std::size_t head) const {
  std::vector<Segment> out;
  heads_[head].segments(now(), out);
  return out;
}

std::vector<KeptEntry> LayerCache::kept(std::size_t head) const { return heads_[head].kept(now()); }

}  // namespace ballast
