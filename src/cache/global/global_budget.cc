#include "cache/global/global_budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "ballast/memory_size.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/byte_budget.h"
#include "cache/cache_parts.h"
#include "cache/cache_size.h"
#include "methods/replay.h"
#include "storage/gap_code.h"
#include "storage/low_bits.h"

namespace ballast {
namespace {

/// bytes= of the method for a text of so many tokens.
std::size_t budget_for(const CacheShape& s, const Policy& policy, std::size_t tokens) {
  return policy.memory("bytes").bytes(tokens, exact_bf16_bytes(s, tokens));
}

/// The tiers with the bytes that their entries take in this cache.
std::vector<Tier> counted_tiers(const CacheShape& s, const CacheOptions& options) {
  std::vector<Tier> tiers = replay_tiers(options.policy, options.protocol, s.key_dim, s.value_dim);
  for (Tier& tier : tiers) tier.bytes -= asks_positions(s) ? 0 : sizeof(Position) - 1;
  return tiers;
}

/// Of a head's means of rotated rows.
std::size_t mean_bytes(std::span<const Tier> tiers, const CacheShape& s) {
  const auto rotated = [&](StorageType Tier::*type) {
    return std::ranges::any_of(tiers, [&](const Tier& tier) { return takes_mean(tier.*type); });
  };
  return (rotated(&Tier::key_type) ? s.key_dim * sizeof(float) : 0) +
         (rotated(&Tier::value_type) ? s.value_dim * sizeof(float) : 0);
}

/// Most bytes of a head that are not counted with its entries, after so many tokens: means, and
/// what the codes of positions take beside a byte an entry.
std::size_t fixed_bytes(std::span<const Tier> tiers, const CacheShape& s,
                        const CacheOptions& options, std::size_t tokens) {
  const bool means = means_of(options.policy, options.protocol, tiers).part > 0;
  const std::size_t codes = asks_positions(s) ? 0 : tiers.size() + (means ? 1 : 0);
  const std::size_t reach = reach_of(options.policy);
  // With reach= one gap, behind the first tokens, may be of any length.
  const std::size_t code = reach == 0 ? more_gap_bytes(tokens)
                                      : more_gap_bytes(std::min(tokens, reach)) + sizeof(Position);
  return mean_bytes(tiers, s) + codes * code;
}

/// The least that holds what a method keeps of so many tokens in any case: the first and last ones,
/// in the cheapest tier of 8 bits or more, and those above its floor in the cheapest of all.
std::size_t ends_bytes(const CacheShape& s, const CacheOptions& options, std::size_t tokens) {
  const Policy& policy = options.policy;
  const std::vector<Tier> tiers = counted_tiers(s, options);
  const std::size_t ends =
      std::min(tokens, static_cast<std::size_t>(policy.integer("sink") + policy.integer("window")));
  const std::size_t safe = tiers[safe_tier(tiers)].bytes, cheapest = tiers.back().bytes;
  std::size_t kept = ends * safe;
  if (const double part = policy.real("floor"); part > 0) {
    // So many bytes x hold the ends and part * x / cheapest entries; all entries take no more.
    const auto more = static_cast<double>(ends * (safe - cheapest));
    const double floor = more == 0 ? 0 : std::ceil(more / (1 - part));  // at 1 without bound
    const std::size_t all = kept + (tokens - ends) * cheapest;
    kept = floor < static_cast<double>(all) ? std::max(kept, static_cast<std::size_t>(floor)) : all;
  }
  const std::size_t head = fixed_bytes(tiers, s, options, tokens) + kept;
  const double entries =
      std::max(1e-6, 1 - means_of(policy, options.protocol, tiers).part);  // of the budget
  return static_cast<std::size_t>(
      std::ceil(static_cast<double>(s.layers * s.kv_heads * head) / entries));
}

/// The entries of one head for the allocation, a run for each of its segments; `scores`: in their
/// order. The first entries, at the positions `held`, have a tier already.
void add_runs(const std::vector<Segment>& segments, std::span<const float> scores,
              std::span<const Position> held, std::span<const Tier> tiers, ScoredRun run,
              std::vector<ScoredRun>& out) {
  std::size_t at = 0;
  for (const Segment& segment : segments) {
    const std::size_t count = segment.keys.rows;
    run.best = 0;
    while (at < held.size() && (tiers[run.best].key_type != segment.keys.type ||
                                tiers[run.best].value_type != segment.values.type)) {
      ++run.best;
    }
    run.scores = scores.subspan(at, count);
    run.positions = at < held.size() ? held.subspan(at, count) : std::span<const Position>();
    run.first_position = segment.first_position;
    out.push_back(run);
    at += count;
  }
}

/// What a method keeps in any case of a text of `n` tokens.
ScoredRun protected_run(const Policy& policy, std::size_t n, std::size_t head, Position reach) {
  ScoredRun run;
  run.head = static_cast<std::uint32_t>(head);
  run.first = static_cast<Position>(policy.integer("sink"));
  const auto window = static_cast<std::size_t>(policy.integer("window"));
  run.last = static_cast<Position>(n - std::min(n, window));
  run.reach = run.first + reach;
  return run;
}

/// floor=: the score above which a head, of which these are the runs, keeps its entries in any
/// case. `bytes`: an equal share of the budget; `room`: of what entries may take of it.
void set_floor(std::span<ScoredRun> runs, const Policy& policy, std::span<const Tier> tiers,
               std::size_t bytes, std::size_t room) {
  const double part = policy.real("floor");
  if (part == 0) return;
  std::vector<float> scores;
  std::size_t ends = 0;
  for (const ScoredRun& run : runs) {
    for (std::size_t i = 0; i < run.scores.size(); ++i) {
      if (run.at_an_end(i)) {
        ++ends;
      } else if (!run.leaves(i)) {
        scores.push_back(run.scores[i]);
      }
    }
  }
  const std::size_t cheapest = tiers.back().bytes, first = ends * tiers[safe_tier(tiers)].bytes;
  const auto held = static_cast<std::size_t>(part * static_cast<double>(bytes / cheapest));
  const std::size_t count =
      std::min(held - std::min(held, ends), (room - std::min(room, first)) / cheapest);
  if (count == 0) return;
  float floor = -1;  // all
  if (count < scores.size()) {
    const auto at = scores.begin() + static_cast<std::ptrdiff_t>(count);
    std::ranges::nth_element(scores, at, std::greater());
    floor = *at;
  }
  for (ScoredRun& run : runs) run.floor = floor;
}

/// Means of each head within the bytes that the allocation leaves: of runs as long in every head.
std::vector<std::size_t> means_for(const Allocation& allocation, const MeansTier& means,
                                   std::size_t tiers, std::size_t bytes) {
  std::vector<std::size_t> out(allocation.runs.size(), 0);
  if (means.part == 0) return out;
  std::size_t all = 0;
  for (std::size_t h = 0; h < out.size(); ++h) {
    out[h] = static_cast<std::size_t>(std::ranges::count(allocation.runs[h], tiers));
    all += out[h];
  }
  const std::size_t most = bytes / means.tier.bytes;
  for (std::size_t& count : out)
    count = std::min(count, most * count / std::max<std::size_t>(all, 1));
  return out;
}

/// Throws Error on options and keys that exclude each other.
void check_keys(const CacheOptions& options) {
  const MethodInfo& info = options.policy.info();
  const bool stream = options.protocol == Protocol::stream;
  require(options.policy.keeps_generated(),
          "method {} keeps what follows the text, or reads it again chunk by chunk: leave out "
          "generated={}",
          info.name, "evict");
  if (stream) {
    require(options.expected_tokens > 0 ||
                options.policy.memory("bytes").unit != MemorySize::Unit::share,
            "method {}: a stream of unknown length has no share: bytes=256M or bytes=40K/token",
            info.name);
    // Methods that never fail here may have no such keys to name.
    const ReplayScore score = options.policy.needs().replay;
    if (score == ReplayScore::rms || score == ReplayScore::mean) {
      fail("method {}: score={} adds up over the whole text: --protocol prefill, or score=max",
           info.name, options.policy.choice("score"));
    }
  }
  if (options.policy.needs().question) {
    const ReplayScore score = options.policy.needs().replay;
    require(!stream && (score == ReplayScore::max || score == ReplayScore::plain),
            "method {}: question=known needs --protocol prefill, and score=max or score=plain",
            info.name);
  }
  require(options.positions == Positions::absolute,
          "method {} needs absolute positions, not rolling ones; streaming-llm, h2o and most "
          "others take these, calibrated with --protocol stream",
          info.name);
  if (const std::size_t reach = reach_of(options.policy); reach > 0) {
    require(stream, "method {}: reach={} needs --protocol stream", info.name, reach);
    std::size_t least = 0;
    for (const char* part : {"sink", "window", "chunk"}) {
      least += static_cast<std::size_t>(options.policy.integer(part));
    }
    require(reach >= least, "method {}: reach={} does not hold sink, window and chunk; give {}",
            info.name, reach, least);
  }
}

/// See GlobalBudget::exact_limit.
std::size_t limit_of(const CacheShape& shape, const CacheOptions& options) {
  const auto chunk = static_cast<std::size_t>(options.policy.integer("chunk"));
  const MemorySize size = options.policy.memory("bytes");
  const std::size_t each = CacheSize(shape, options).token(), known = options.expected_tokens;
  const std::size_t reach = reach_of(options.policy);
  const std::size_t most = reach > 0 ? reach : std::numeric_limits<std::size_t>::max();
  if (size.needs_length() && known == 0) {  // bytes a token
    return size.amount >= static_cast<double>(each) ? most : chunk;
  }
  const std::size_t fits = global_budget_bytes(shape, options, known) / each;
  return std::min(most, std::max({chunk, fits / chunk * chunk, known <= fits ? known : 0}));
}

}  // namespace

ReplayHead ReplayHead::kept(std::span<const ScoredRun> runs, std::span<const std::uint8_t> given,
                            std::size_t tiers) const {
  ReplayHead out;
  const auto count = static_cast<std::size_t>(
      std::ranges::count_if(given, [&](std::uint8_t t) { return t < tiers; }));
  out.scores.reserve(count);
  if (!norms.empty()) out.norms.reserve(count);
  std::vector<std::pair<Position, std::uint32_t>> order;
  for (std::size_t t = 0; t < tiers; ++t) {
    order.clear();
    std::uint32_t at = 0;
    for (const ScoredRun& run : runs) {
      for (std::size_t i = 0; i < run.scores.size(); ++i, ++at) {
        if (given[at] == t) order.emplace_back(run.position(i), at);
      }
    }
    std::ranges::sort(order);
    for (const auto& [position, i] : order) {
      out.scores.push_back(scores[i]);
      if (!norms.empty()) out.norms.push_back(norms[i]);
    }
  }
  return out;
}

std::size_t global_budget_bytes(const CacheShape& s, const CacheOptions& options,
                                std::size_t tokens) {
  const std::size_t bytes = budget_for(s, options.policy, tokens);
  if (options.policy.memory("bytes").unit != MemorySize::Unit::share ||
      bytes >= ends_bytes(s, options, tokens)) {
    return bytes;
  }
  return std::max(bytes, tokens * CacheSize(s, options).token());
}

void require_bytes(const CacheShape& s, const CacheOptions& options, std::size_t tokens) {
  if (!options.policy.has("bytes")) return;
  if (!options.policy.info().global_budget) {
    fit_bytes(s, options, tokens, true);
    return;
  }
  CacheOptions counted = options;
  set_types(options.policy, counted.key_type, counted.value_type);
  const std::size_t bytes = budget_for(s, options.policy, tokens);
  const std::size_t least = ends_bytes(s, counted, tokens);
  require(bytes >= std::min(least, tokens * CacheSize(s, options).token()),
          "method {}: {} bytes for {} tokens do not hold the first and last tokens of every head; "
          "give at least {}",
          options.policy.to_string(), bytes, tokens, least);
}

void require_bytes(const Cache& cache) {
  const CacheOptions& o = cache.options();
  require_bytes(cache.shape(), o,
                o.protocol == Protocol::stream ? o.expected_tokens : cache.tokens());
}

bool asks_positions(const CacheShape& shape) {
  return !shape.alibi_slopes.empty() || shape.logits.sliding_window > 0 ||
         std::ranges::any_of(shape.sliding_windows, [](Position window) { return window > 0; });
}

GlobalBudget::GlobalBudget(CacheParts& cache) : cache_(cache) {
  check_keys(cache.options);
  if (streams()) exact_limit_ = limit_of(cache.shape, cache.options);
}

bool GlobalBudget::streams() const { return cache_.options.protocol == Protocol::stream; }

std::size_t GlobalBudget::chunk() const {
  return static_cast<std::size_t>(cache_.options.policy.integer("chunk"));
}

Position GlobalBudget::out_of_reach(std::size_t tokens) const {
  const std::size_t reach = reach_of(cache_.options.policy), end = tokens + chunk();
  return reach == 0 ? 0 : static_cast<Position>(end - std::min(end, reach));
}

std::size_t GlobalBudget::bytes() const {
  const std::size_t known = streams() ? cache_.options.expected_tokens : 0;
  return global_budget_bytes(cache_.shape, cache_.options, known != 0 ? known : cache_.tokens());
}

bool GlobalBudget::fits_exactly() const {
  return cache_.tokens() * CacheSize(cache_.shape, cache_.options).token() <= bytes();
}

// Runs of head i begin at first_run[i].
Allocation GlobalBudget::divide(std::span<ScoredRun> runs, std::span<const std::size_t> first_run,
                                std::span<const Tier> tiers, std::size_t budget) const {
  const CacheShape& shape = cache_.shape;
  const CacheOptions& options = cache_.options;
  const std::size_t heads = first_run.size() - 1,
                    fixed = heads * fixed_bytes(tiers, shape, options, cache_.tokens());
  const double part = means_of(options.policy, options.protocol, tiers).part;
  const auto means = static_cast<std::size_t>(part * static_cast<double>(budget));
  for (std::size_t h = 0; h < heads; ++h) {
    set_floor(runs.subspan(first_run[h], first_run[h + 1] - first_run[h]), options.policy, tiers,
              (budget - std::min(budget, fixed)) / heads,
              (budget - std::min(budget, fixed + means)) / heads);
  }
  return allocate(runs, tiers, budget - means, fixed);
}

void GlobalBudget::end_chunk(std::size_t budget) {
  const auto& [shape, options, layers] = std::tie(cache_.shape, cache_.options, cache_.layers);
  Scoring& scoring = cache_.scoring;
  std::shared_ptr<ReplayScores>& scores = scoring.scores_;
  const Policy& policy = options.policy;
  const std::size_t chunk = scoring.chunk_tokens(), n = cache_.tokens();
  const std::vector<Tier> tiers = counted_tiers(shape, options);
  // A clone made since the replay pass keeps its scores.
  if (scores.use_count() > 1) scores = std::make_shared<ReplayScores>(scores->copy());
  std::vector<ScoredRun> runs;
  std::vector<std::size_t> first_run;  // of each head
  std::vector<VectorInOwnPages<Position>> held(shape.layers * shape.kv_heads);
  for (std::size_t l = 0; l < shape.layers; ++l) {
    require(layers[l]->tokens() == n && layers[l]->chunk_tokens() == chunk,
            "layer {} has read {} tokens, layer 0 {}", l, layers[l]->tokens(), n);
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      const std::size_t entries = layers[l]->head(h).entries();
      require(
          scores != nullptr && scoring.scores(l, h).size() == entries,
          "layer {}: scores of its tokens, by replay() or note_scores(), come before end_chunk()",
          l);
      first_run.push_back(runs.size());
      const std::size_t head = l * shape.kv_heads + h;
      held[head] = layers[l]->head(h).summary_positions();
      add_runs(layers[l]->segments(h), scoring.scores(l, h), held[head], tiers,
               protected_run(policy, n, head, out_of_reach(n)), runs);
    }
  }
  first_run.push_back(runs.size());
  const Allocation allocation = divide(runs, first_run, tiers, budget);
  const PoolScope scope(options.pool.get());
  std::vector<EntryTiers> given(shape.kv_heads);
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      const std::size_t head = l * shape.kv_heads + h;
      given[h].clear();
      for (std::size_t r = first_run[head]; r < first_run[head + 1]; ++r) {
        given[h].insert(given[h].end(), allocation.runs[r].begin(), allocation.runs[r].end());
      }
      ReplayHead& scored = scores->layer(l)[h];
      scored = scored.kept(
          std::span(runs).subspan(first_run[head], first_run[head + 1] - first_run[head]), given[h],
          tiers.size());
    }
    layers[l]->end_chunk(given);
  }
}

std::size_t GlobalBudget::saved_scores(std::size_t layer, std::size_t head) const {
  const std::size_t entries = cache_.layers[layer]->head(head).entries();
  const Scoring& scoring = cache_.scoring;
  return scoring.gives_scores() ? entries : entries - scoring.chunk_tokens();
}

void GlobalBudget::save(ByteWriter& out) const {
  const auto& [shape, options, layers] = std::tie(cache_.shape, cache_.options, cache_.layers);
  if (streams()) {
    out.put<std::uint64_t>(0);
  } else if (!cache_.scoring.takes_scores()) {
    return;
  }
  const std::shared_ptr<ReplayScores>& scores = cache_.scoring.scores_;
  const bool weighs = options.policy.needs().replay == ReplayScore::max;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      const std::size_t count = saved_scores(l, h);
      if (count == 0) continue;
      const ReplayHead& head = scores->layer(l)[h];
      require(head.scores.size() >= count, "a cache is saved once each of its tokens has scores");
      out.put_all<float>(std::span(head.scores).first(count));
      if (weighs) out.put_all<float>(std::span(head.norms).first(count));
    }
  }
}

void GlobalBudget::load(ByteReader& in) {
  const auto& [shape, options, layers] = std::tie(cache_.shape, cache_.options, cache_.layers);
  if (streams()) {
    const std::size_t most = std::min(in.left() / sizeof(std::int32_t), cache_.tokens());
    std::vector<std::int32_t> ids(in.get_count(most, "ids of tokens"));
    in.get_all<std::int32_t>(ids);
  } else if (!cache_.scoring.takes_scores()) {
    return;
  }
  bool holds = false;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      const HeadCache& head = layers[l]->head(h);
      const std::size_t window = layers[0]->chunk_tokens();
      require(
          layers[l]->tokens() == cache_.tokens() && head.window.size() == window && head.sink == 0,
          "{}: layer {}, KV head {} has other tokens than the first", in.what(), l, h);
      holds = holds || saved_scores(l, h) > 0;
    }
  }
  if (!holds) return;
  const bool weighs = options.policy.needs().replay == ReplayScore::max;
  cache_.scoring.scores_ = std::make_shared<ReplayScores>(layers.size(), shape.kv_heads);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      ReplayHead& head = cache_.scoring.scores_->layer(l)[h];
      for (VectorInOwnPages<float>* part : {&head.scores, &head.norms}) {
        if (part == &head.norms && !weighs) continue;
        part->resize(saved_scores(l, h));
        in.get_all<float>(*part);
        require(std::ranges::all_of(*part, [](float x) { return x >= 0 && std::isfinite(x); }),
                "{}: a score is negative or not finite", in.what());
      }
    }
  }
}

void GlobalBudget::finish_prompt() {
  const auto& [shape, options, layers] = std::tie(cache_.shape, cache_.options, cache_.layers);
  Scoring& scoring = cache_.scoring;
  std::shared_ptr<ReplayScores>& scores = scoring.scores_;
  const std::size_t n = cache_.tokens();
  const Policy& policy = options.policy;
  if (streams() || fits_exactly()) {
    require(!streams() || !scoring.needs_replay(),
            "method {} needs a replay pass before the prompt ends", policy.info().name);
    if (!streams()) scores.reset();
    for (auto& layer : layers) layer->finish_prompt(std::span<const EntryTiers>{}, {});
    return;
  }
  require(scores != nullptr, "method {} needs a replay pass before the prompt ends",
          policy.info().name);
  const std::vector<Tier> tiers = counted_tiers(shape, options);
  std::vector<ScoredRun> runs;
  std::vector<std::vector<float>> roots;  // score=rms has sums of squares
  std::vector<std::size_t> first_run = {0};
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      first_run.push_back(runs.size() + 1);
      runs.push_back(protected_run(policy, n, l * shape.kv_heads + h, 0));
      runs.back().scores = scoring.scores(l, h);
      if (policy.needs().replay == ReplayScore::rms) {
        std::vector<float>& root = roots.emplace_back(runs.back().scores.size());
        std::ranges::transform(runs.back().scores, root.begin(),
                               [](float x) { return std::sqrt(x); });
        runs.back().scores = root;
      }
      require(runs.back().scores.size() == n, "layer {}: {} of {} tokens have scores", l,
              runs.back().scores.size(), n);
    }
  }
  const Allocation allocation = divide(runs, first_run, tiers, bytes());
  scores.reset();
  const std::vector<std::size_t> means =
      means_for(allocation, means_of(policy, options.protocol, tiers), tiers.size(),
                bytes() - shape.layers * shape.kv_heads * fixed_bytes(tiers, shape, options, n) -
                    allocation.bytes);
  for (std::size_t l = 0; l < shape.layers; ++l) {
    layers[l]->finish_prompt(std::span(allocation.runs).subspan(l * shape.kv_heads, shape.kv_heads),
                             std::span(means).subspan(l * shape.kv_heads, shape.kv_heads));
  }
}

}  // namespace ballast
