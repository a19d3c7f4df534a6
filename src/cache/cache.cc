#include "ballast/cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ballast/serialize.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/byte_budget.h"
#include "cache/cache_parts.h"
#include "cache/held_memory.h"
#include "methods/entry_budget.h"

namespace ballast {

std::string_view to_string(Positions positions) {
  return positions == Positions::absolute ? "absolute" : "rolling";
}

Positions parse_positions(std::string_view name) {
  for (Positions p : {Positions::absolute, Positions::rolling}) {
    if (name == to_string(p)) return p;
  }
  fail("unknown positions '{}'; known: absolute, rolling", name);
}

CacheBytes& CacheBytes::operator+=(const CacheBytes& other) {
  sink += other.sink;
  summary += other.summary;
  window += other.window;
  attention_stats += other.attention_stats;
  rotary += other.rotary;
  recurrent += other.recurrent;
  room += other.room;
  return *this;
}

void check_shape(const CacheShape& shape) {
  require(shape.layers > 0 && shape.kv_heads > 0 && shape.queries_per_kv_head > 0,
          "a cache needs layers, KV heads and query heads; given: {}, {} and {} a KV head",
          shape.layers, shape.kv_heads, shape.queries_per_kv_head);
  for (std::size_t dim : {shape.key_dim, shape.value_dim}) {
    require(dim >= 1 && dim <= kMaxHeadDim, "a head dimension of {}; supported: 1 to {}", dim,
            kMaxHeadDim);
  }
  require(shape.sliding_windows.empty() || shape.sliding_windows.size() == shape.layers,
          "{} sliding windows for {} layers", shape.sliding_windows.size(), shape.layers);
  require(shape.alibi_slopes.empty() ||
              shape.alibi_slopes.size() == shape.kv_heads * shape.queries_per_kv_head,
          "{} ALiBi slopes for {} query heads", shape.alibi_slopes.size(),
          shape.kv_heads * shape.queries_per_kv_head);
  require(shape.sink_logits.empty() ||
              shape.sink_logits.size() == shape.layers * shape.kv_heads * shape.queries_per_kv_head,
          "{} sink logits for {} layers of {} query heads", shape.sink_logits.size(), shape.layers,
          shape.kv_heads * shape.queries_per_kv_head);
  require(shape.rotations.empty() || shape.rotations.size() == shape.layers,
          "{} rotations for {} layers", shape.rotations.size(), shape.layers);
  for (std::size_t l = 0; l < std::max<std::size_t>(shape.rotations.size(), 1); ++l) {
    require(2 * shape.rotary_of(l).frequencies.size() <= shape.key_dim,
            "{} rotations of two numbers in a head of {}", shape.rotary_of(l).frequencies.size(),
            shape.key_dim);
  }
  require(!std::isnan(shape.logits.scale),
          "CacheShape::logits.scale is not set; it is usually 1 / sqrt(key_dim), here {}",
          1.0f / std::sqrt(static_cast<float>(shape.key_dim)));
}

namespace {

void check_heads(const HeadsView& view, std::size_t tokens, std::size_t heads, std::size_t dim,
                 const char* name) {
  const bool fits =
      view.tokens == tokens && (tokens == 0 || (view.heads == heads && view.dim == dim));
  require(fits || view.heads != 1, "{} {} × {}, expected {} × {}", name, view.tokens, view.dim,
          tokens, heads * dim);  // a matrix
  require(fits, "{} {} tokens × {} heads × {}, expected {} × {} × {}", name, view.tokens,
          view.heads, view.dim, tokens, heads, dim);
  require(view.data != nullptr || tokens == 0, "{} {} tokens without data", name, tokens);
}

/// Index of the first element of the vectors that is not finite, as if heads lay side by side.
std::size_t first_fault(const HeadsView& view, std::size_t token) {
  if (view.type == ElementType::f32) {
    const auto* first = static_cast<const float*>(view.at(token, 0));
    if (view.head_stride == view.dim)
      return first_not_finite(std::span(first, view.heads * view.dim));
    for (std::size_t h = 0; h < view.heads; ++h) {
      const std::size_t at = first_not_finite(std::span(first + h * view.head_stride, view.dim));
      if (at != view.dim) return h * view.dim + at;
    }
    return view.heads * view.dim;
  }
  const std::uint16_t exponent = view.type == ElementType::f16 ? 0x7c00 : 0x7f80;
  for (std::size_t h = 0; h < view.heads; ++h) {
    const std::size_t at = first_not_finite(view.at(token, h), view.dim, exponent);
    if (at != view.dim) return h * view.dim + at;
  }
  return view.heads * view.dim;
}

/// An element that is not finite.
float not_finite(const HeadsView& view, std::size_t token, std::size_t number) {
  const void* head = view.at(token, number / view.dim);
  const std::size_t i = number % view.dim;
  if (view.type == ElementType::f32) return static_cast<const float*>(head)[i];
  const std::uint16_t code = static_cast<const std::uint16_t*>(head)[i];
  const std::uint16_t fraction = view.type == ElementType::f16 ? 0x3ff : 0x7f;
  const float size = (code & fraction) != 0 ? std::numeric_limits<float>::quiet_NaN()
                                            : std::numeric_limits<float>::infinity();
  return (code & 0x8000) != 0 ? -size : size;
}

void check_finite(const HeadsView& view, const char* name) {
  for (std::size_t t = 0; t < view.tokens; ++t) {
    const std::size_t at = first_fault(view, t);
    if (at == view.heads * view.dim) continue;
    fail(ErrorCode::not_finite, "{}: token {}, number {} is {}", name, t, at,
         not_finite(view, t, at));
  }
}

}  // namespace

bool CacheOptions::needs_queries() const {
  const Needs needs = policy.needs();
  return needs.all_queries() || recording.needs_queries();
}

CacheParts::CacheParts(const CacheShape& given_shape, const CacheOptions& given, bool reserve)
    : shape(given_shape), options(given) {
  check_shape(shape);
  set_types(options.policy, options.key_type, options.value_type);
  const MethodInfo& info = options.policy.info();
  require(info.window_policy == WindowPolicy::all || !options.recording.any(),
          "only an exact cache notes attention for others, not {}", info.name);
  if (info.global_budget) global = std::make_unique<GlobalBudget>(*this);
  if (!shape.recurrent.empty()) recurrent.emplace(shape.recurrent);
  if (info.make_shared != nullptr) shared = info.make_shared(options.policy);
  if (options.positions == Positions::rolling) {
    require(shape.rotations.empty(), "rolling positions need one rotation for all layers");
    rotations = std::make_unique<RotaryTable>(shape.rotary);
  }
  // In prefill the prompt's length decides; copies get the budget of what they are copied from.
  const bool later =
      bytes_are_entries(options.policy) && (options.protocol == Protocol::prefill || !reserve);
  Policy counted = options.policy;
  if (!later) counted = fit_bytes(shape, options, options.expected_tokens);
  for (std::size_t l = 0; l < shape.layers; ++l) {
    layers.push_back(std::make_unique<LayerCache>(shape, options, later ? nullptr : &counted, l,
                                                  shared.get(), rotations.get(), global.get(),
                                                  reserve));
  }
}

const LayerCache& CacheParts::layer(std::size_t layer, std::size_t kv_head) const {
  require(layer < layers.size(), "layer {} of a cache of {} layers", layer, layers.size());
  require(kv_head < shape.kv_heads, "KV head {} of {}", kv_head, shape.kv_heads);
  return *layers[layer];
}

void CacheParts::reach_rotations() {
  std::size_t most = 0;
  for (const auto& layer : layers) most = std::max(most, layer->entries());
  if (rotations && most > 0) rotations->reach(most + 1);
}

Policy CacheParts::counted(std::size_t tokens) {
  if (!bytes_are_entries(options.policy)) return options.policy;
  const std::lock_guard lock(mutex_);
  if (counted_tokens_ != tokens) counted_ = fit_bytes(shape, options, tokens);
  counted_tokens_ = tokens;
  return counted_;
}

Cache::Cache(const CacheShape& shape, const CacheOptions& options)
    : parts_(std::make_unique<CacheParts>(shape, options, true)) {}
Cache::Cache(std::unique_ptr<CacheParts> parts) : parts_(std::move(parts)) {}
Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
Cache::~Cache() = default;

const CacheShape& Cache::shape() const { return parts_->shape; }
const CacheOptions& Cache::options() const { return parts_->options; }
RecurrentStates* Cache::recurrent() { return parts_->recurrent ? &*parts_->recurrent : nullptr; }
const RecurrentStates* Cache::recurrent() const {
  return parts_->recurrent ? &*parts_->recurrent : nullptr;
}
namespace {

/// Whether so many tokens come with queries.
bool wants_queries(const CacheOptions& options, std::size_t tokens, std::size_t queries) {
  return queries != 0 || tokens == 0 || options.needs_queries();
}

/// Throws Error if forward() cannot take these. Elements are looked at by check_elements().
void check(const CacheParts& cache, std::size_t layer, const HeadsView& keys,
           const HeadsView& values, const HeadsView& queries, const MutableHeadsView& out) {
  const CacheShape& s = cache.shape;
  require(layer < s.layers, "layer {} of a cache of {} layers", layer, s.layers);
  const std::size_t query_heads = s.kv_heads * s.queries_per_kv_head;
  check_heads(keys, keys.tokens, s.kv_heads, s.key_dim, "keys are");
  check_heads(values, keys.tokens, s.kv_heads, s.value_dim, "values are");
  const std::size_t answers =
      wants_queries(cache.options, keys.tokens, queries.tokens) ? keys.tokens : 0;
  check_heads(queries, answers, query_heads, s.key_dim, "queries are");
  check_heads(out, answers, query_heads, s.value_dim, "the output is");
  const std::size_t room = cache.layers[layer]->chunk_room();
  require(keys.tokens <= room,
          "layer {}: {} tokens, but a chunk has room for {} before it is read again and ended with "
          "end_chunk()",
          layer, keys.tokens, room);
  const std::size_t after = cache.layers[layer]->tokens() + keys.tokens;
  constexpr std::size_t most = std::numeric_limits<Position>::max();
  require(after <= most, "layer {} would have {} tokens; positions go up to {}", layer, after,
          most);
  if (layer == 0) return;
  const std::size_t before = cache.layers[layer - 1]->tokens();
  require(after <= before,
          "layer {} would have {} tokens, layer {} has {}: each layer takes the same tokens, layer "
          "0 first",
          layer, after, layer - 1, before);
}

void check_elements(const CacheOptions& options, const HeadsView& keys, const HeadsView& values,
                    const HeadsView& queries) {
  if (!options.check_finite) return;
  check_finite(keys, "keys");
  check_finite(values, "values");
  check_finite(queries, "queries");
}

}  // namespace

namespace {

/// A matrix's view as that of heads side by side.
template <typename View>
View split(View rows, std::size_t heads, std::size_t dim) {
  if (rows.heads != 1 || rows.tokens == 0 || rows.dim != heads * dim) return rows;
  rows.heads = heads;
  rows.dim = rows.head_stride = dim;
  return rows;
}

}  // namespace

void Cache::forward(std::size_t layer, const HeadsView& keys, const HeadsView& values,
                    const HeadsView& queries, const MutableHeadsView& out) {
  const CacheShape& s = shape();
  const std::size_t query_heads = s.kv_heads * s.queries_per_kv_head;
  const HeadsView k = split(keys, s.kv_heads, s.key_dim);
  const HeadsView v = split(values, s.kv_heads, s.value_dim);
  const HeadsView q = split(queries, query_heads, s.key_dim);
  const MutableHeadsView o = split(out, query_heads, s.value_dim);
  check(*parts_, layer, k, v, q, o);
  check_elements(options(), k, v, q);
  parts_->layers[layer]->forward(k, v, q, o);
}

void forward_batch(std::size_t layer, std::span<const BatchItem> items) {
  constexpr std::size_t kParallelCheck = std::size_t{1} << 16;  // elements of keys
  std::size_t elements = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const BatchItem& item = items[i];
    require(item.cache != nullptr, "sequence {} of a batch has no cache", i);
    for (std::size_t j = 0; j < i; ++j) {
      require(items[j].cache != item.cache, "sequences {} and {} of a batch have the same cache", j,
              i);
    }
  }
  for (const BatchItem& item : items) {
    check(CacheParts::of(*item.cache), layer, item.keys, item.values, item.queries, item.out);
    elements += item.keys.tokens * item.keys.heads * item.keys.dim;
  }
  if (items.empty()) return;
  const PoolScope scope(items[0].cache->options().pool.get());
  parallel_for(
      items.size(),
      [&](std::size_t i) {
        check_elements(items[i].cache->options(), items[i].keys, items[i].values, items[i].queries);
      },
      elements >= kParallelCheck);
  const auto attend = [&](std::size_t i) {
    const BatchItem& item = items[i];
    CacheParts::of(*item.cache)
        .layers[layer]
        ->forward(item.keys, item.values, item.queries, item.out);
  };
  // A sequence for each thread. The last ones, too few for that, are taken one after another where
  // they are through sooner when their heads share the threads.
  const auto workers = loop_threads();
  const std::size_t rest = items.size() % workers;
  const std::size_t heads = items[0].cache->shape().kv_heads;
  const bool share = rest * ((heads + workers - 1) / workers) < heads;
  const std::size_t alone = share ? items.size() - rest : items.size();
  parallel_for(alone, attend, workers > 1);
  for (std::size_t i = alone; i < items.size(); ++i) attend(i);
}

void Cache::finish_prompt(std::optional<std::size_t> one) {
  const auto& layers = parts_->layers;
  if (one) {
    const std::size_t layer = *one;
    require(layer < layers.size(), "layer {} of a cache of {} layers", layer, layers.size());
    const std::size_t before = layer == 0 ? 0 : layers[layer - 1]->prompt_tokens();
    require(before == 0 || before == tokens(layer),
            "layer {} has {} tokens, layer {} finished its prompt with {}", layer, tokens(layer),
            layer - 1, before);
    require(!parts_->global,
            "method {} divides one budget among all layers: finish their prompt together",
            options().policy.info().name);
    layers[layer]->finish_prompt(parts_->counted(tokens(layer)));
    return;
  }
  for (std::size_t l = 1; l < shape().layers; ++l) {
    require(tokens(l) == tokens(0),
            "layer {} has {} tokens, layer 0 has {}: a prompt ends once each layer has read it", l,
            tokens(l), tokens(0));
  }
  if (parts_->global) return parts_->global->finish_prompt();
  const Policy counted = parts_->counted(tokens());
  for (auto& layer : parts_->layers) layer->finish_prompt(counted);
}

Cache Cache::clone() const {
  const CacheParts& from = *parts_;
  auto out = std::make_unique<CacheParts>(shape(), options(), false);
  if (from.shared) copy_saved(*from.shared, *out->shared);
  out->scoring.copy(from.scoring);
  out->joined = from.joined;
  for (std::size_t l = 0; l < shape().layers; ++l) out->layers[l]->copy(*from.layers[l]);
  out->recurrent = from.recurrent;
  out->reach_rotations();
  return Cache(std::move(out));
}

void Cache::truncate(std::size_t tokens) {
  CacheParts& all = *parts_;
  for (const auto& layer : all.layers) layer->check_truncate(tokens);
  if (all.recurrent) all.recurrent->truncate(tokens);
  for (auto& layer : all.layers) layer->truncate(tokens);
  all.scoring.truncate();
}

void Cache::reserve(std::size_t tokens) {
  for (auto& layer : parts_->layers) layer->reserve(tokens);
}

std::size_t Cache::tokens(std::size_t layer) const { return parts_->layers.at(layer)->tokens(); }
std::size_t Cache::entries(std::size_t layer) const { return parts_->layers.at(layer)->entries(); }

CacheBytes Cache::bytes() const {
  const CacheParts& all = *parts_;
  CacheBytes bytes;
  for (const auto& layer : all.layers) bytes += layer->bytes();
  if (all.shared) bytes.attention_stats += all.shared->bytes();
  bytes.attention_stats += all.scoring.bytes();
  if (all.rotations) bytes.rotary = all.rotations->bytes();
  if (all.joined) bytes += all.joined->bytes();
  if (all.recurrent) bytes.recurrent = all.recurrent->bytes();
  return bytes;
}

std::vector<Segment> Cache::segments(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  return parts_->layers.at(layer)->segments(head);
}

std::vector<KeptEntry> Cache::kept(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  std::vector<KeptEntry> out = parts_->layers.at(layer)->kept(head);
  if (!parts_->joined) return out;
  std::vector<KeptEntry> all = parts_->joined->kept(layer, head);
  all.insert(all.end(), out.begin(), out.end());
  return all;
}

std::vector<HeldMemory> held_memory(const Cache& cache) {
  std::vector<HeldMemory> out;
  for (const auto& layer : CacheParts::of(cache).layers) layer->list(out);
  return out;
}

std::size_t shared_memory(const Cache& a, const Cache& b) {
  std::set<const void*> known;
  for (const HeldMemory& one : held_memory(a)) known.insert(one.address);
  std::size_t bytes = 0;
  for (const HeldMemory& one : held_memory(b)) bytes += known.contains(one.address) ? one.bytes : 0;
  return bytes;
}

void drop_room(Cache& cache) {
  for (auto& layer : CacheParts::of(cache).layers) layer->drop_room();
}

void set_host(Cache& cache, std::shared_ptr<ThreadPool> pool,
              std::shared_ptr<const ValueNorms> value_norms) {
  CacheOptions& options = CacheParts::of(cache).options;
  options.pool = std::move(pool);
  options.value_norms = std::move(value_norms);
}

std::vector<std::string> reports_of(const Cache& cache) {
  std::vector<std::string> out;
  for (std::size_t l = 0; l < cache.shape().layers; ++l) {
    for (std::size_t h = 0; h < cache.shape().kv_heads; ++h) {
      const Summary* summary = CacheParts::of(cache).layers[l]->head(h).summary.get();
      std::string text = summary ? summary->report() : std::string{};
      if (!text.empty()) out.push_back(fmt::format("layer {} head {}: {}", l, h, text));
    }
  }
  return out;
}

}  // namespace ballast
