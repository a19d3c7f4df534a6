#include "ballast/cache.h"

#include <algorithm>
#include <cmath>

#include "attention/rotary.h"
#include "base/bytes.h"
#include "base/checks.h"
#include "base/fail.h"
#include "cache/cache_parts.h"

namespace ballast {

struct Cache::Settings {
  CacheShape shape;
  CacheOptions options;
};

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
  return *this;
}

const LayerCache& CacheParts::layer(const Cache& cache, std::size_t layer, std::size_t kv_head) {
  require(layer < cache.layers_.size(), "layer {} of a cache of {} layers", layer,
          cache.layers_.size());
  require(kv_head < cache.shape().kv_heads, "KV head {} of {}", kv_head, cache.shape().kv_heads);
  return *cache.layers_[layer];
}

void check_shape(const CacheShape& shape) {
  require(shape.layers > 0 && shape.kv_heads > 0 && shape.queries_per_kv_head > 0,
          "a cache needs layers, KV heads and query heads; given: {}, {} and {} a KV head",
          shape.layers, shape.kv_heads, shape.queries_per_kv_head);
  for (std::size_t dim : {shape.key_dim, shape.value_dim}) {
    require(dim >= 1 && dim <= kMostHeadDim, "a head dimension of {}; supported: 1 to {}", dim,
            kMostHeadDim);
  }
  require(shape.sliding_windows.empty() || shape.sliding_windows.size() == shape.layers,
          "{} sliding windows for {} layers", shape.sliding_windows.size(), shape.layers);
  require(shape.alibi_slopes.empty() ||
              shape.alibi_slopes.size() == shape.kv_heads * shape.queries_per_kv_head,
          "{} ALiBi slopes for {} query heads", shape.alibi_slopes.size(),
          shape.kv_heads * shape.queries_per_kv_head);
  require(2 * shape.rotary.frequencies.size() <= shape.key_dim,
          "{} rotations of two numbers in a head of {}", shape.rotary.frequencies.size(),
          shape.key_dim);
  require(!std::isnan(shape.logits.scale),
          "CacheShape::logits.scale is not set; it is usually 1 / sqrt(key_dim), here {}",
          1.0f / std::sqrt(static_cast<float>(shape.key_dim)));
}

namespace {

void check_rows(ConstMatrix rows, std::size_t count, std::size_t cols, const char* name) {
  require(rows.rows == count && rows.cols == cols, "{} are {} × {}, expected {} × {}", name,
          rows.rows, rows.cols, count, cols);
  for (std::size_t t = 0; t < rows.rows; ++t) {
    const std::size_t at = first_not_finite(rows[t]);
    require(at == rows.cols, "{}: token {}, number {} is {}", name, t, at,
            rows[t][std::min(at, cols - 1)]);
  }
}

}  // namespace

bool CacheOptions::needs_queries() const {
  return policy.attention_stats().kind != AttentionStats::Kind::nothing || recording.any();
}

Cache::Cache(const CacheShape& shape, const CacheOptions& options) : Cache(shape, options, true) {}

Cache::Cache(const CacheShape& shape, const CacheOptions& options, bool reserve)
    : settings_(new Settings{shape, options}) {
  check_shape(shape);
  const MethodInfo& info = options.policy.info();
  require(info.window_policy == WindowPolicy::all || !options.recording.any(),
          "only an exact cache notes attention for others, not {}", info.name);
  if (info.make_shared != nullptr) shared_ = info.make_shared(options.policy);
  if (options.positions == Positions::rolling) {
    rotations_ = std::make_unique<RotaryTable>(shape.rotary);
  }
  for (std::size_t l = 0; l < shape.layers; ++l) {
    layers_.push_back(std::make_unique<LayerCache>(settings_->shape, settings_->options, l,
                                                   shared_.get(), rotations_.get(), reserve));
  }
}

Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
Cache::~Cache() = default;

const CacheShape& Cache::shape() const { return settings_->shape; }
const CacheOptions& Cache::options() const { return settings_->options; }

void Cache::forward(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                    MutableMatrix out) {
  const CacheShape& s = shape();
  require(layer < s.layers, "layer {} of a cache of {} layers", layer, s.layers);
  const std::size_t query_heads = s.kv_heads * s.queries_per_kv_head;
  check_rows(keys, keys.rows, s.kv_heads * s.key_dim, "keys");
  check_rows(values, keys.rows, s.kv_heads * s.value_dim, "values");
  // Nobody asks: only a method that watches attention needs the queries then.
  const bool asked = queries.rows != 0 || keys.rows == 0 || options().needs_queries();
  const std::size_t answers = asked ? keys.rows : 0;
  check_rows(queries, answers, query_heads * s.key_dim, "queries");
  require(out.rows == answers && out.cols == query_heads * s.value_dim,
          "the output is {} × {}, expected {} × {}", out.rows, out.cols, answers,
          query_heads * s.value_dim);
  layers_[layer]->forward(keys, values, queries, out);
}

void Cache::finish_prompt(std::size_t layer) {
  require(layer < layers_.size(), "layer {} of a cache of {} layers", layer, layers_.size());
  layers_[layer]->finish_prompt();
}

void Cache::finish_prompt() {
  for (auto& layer : layers_) layer->finish_prompt();
}

Cache Cache::fork(const Policy& policy, std::uint64_t seed) const {
  CacheOptions options = settings_->options;
  require(options.policy.info().window_policy == WindowPolicy::all &&
              options.protocol == Protocol::prefill,
          "only an exact cache in prefill can be forked, not {} in {}", options.policy.info().name,
          to_string(options.protocol));
  options.policy = policy;
  options.seed = seed;
  options.recording = {};
  Cache out(shape(), options, false);
  for (std::size_t l = 0; l < layers_.size(); ++l) out.layers_[l]->copy_prompt(*layers_[l]);
  return out;
}

Cache Cache::clone() const {
  Cache out(shape(), options(), false);
  if (shared_) copy_saved(*shared_, *out.shared_);
  for (std::size_t l = 0; l < layers_.size(); ++l) out.layers_[l]->copy(*layers_[l]);
  out.reach_rotations();
  return out;
}

void Cache::reach_rotations() {
  std::size_t most = 0;
  for (const auto& layer : layers_) most = std::max(most, layer->entries());
  if (rotations_ && most > 0) rotations_->reach(most + 1);
}

void Cache::reserve(std::size_t tokens) {
  for (auto& layer : layers_) layer->reserve(tokens);
}

std::size_t Cache::tokens(std::size_t layer) const { return layers_.at(layer)->tokens(); }
std::size_t Cache::entries(std::size_t layer) const { return layers_.at(layer)->entries(); }

CacheBytes Cache::bytes() const {
  CacheBytes bytes;
  for (const auto& layer : layers_) bytes += layer->bytes();
  if (shared_) bytes.attention_stats += shared_->bytes();
  if (rotations_) bytes.rotary = rotations_->bytes();
  return bytes;
}

std::vector<Segment> Cache::segments(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  return layers_.at(layer)->segments(head);
}

std::vector<KeptEntry> Cache::kept(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  return layers_.at(layer)->kept(head);
}

std::vector<std::string> Cache::reports() const {
  std::vector<std::string> out;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t h = 0; h < shape().kv_heads; ++h) {
      const Summary* summary = layers_[l]->head(h).summary.get();
      std::string text = summary ? summary->report() : std::string{};
      if (!text.empty()) out.push_back(fmt::format("layer {} head {}: {}", l, h, text));
    }
  }
  return out;
}

}  // namespace ballast
