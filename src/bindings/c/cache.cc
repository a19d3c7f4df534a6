#include "bindings/c/cache.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ballast/attention.h"
#include "ballast/scoring.h"
#include "bindings/c/guard.h"
#include "bindings/options.h"

namespace ballast::c {
namespace {

float scale_of(float scale, std::size_t key_dim) {
  return scale == 0.0f && key_dim > 0 ? 1.0f / std::sqrt(static_cast<float>(key_dim)) : scale;
}

// convert() relies on the order.
static_assert(BALLAST_BF16 == static_cast<int>(ElementType::bf16) &&
              BALLAST_F16 == static_cast<int>(ElementType::f16));
static_assert(BALLAST_NUMERATOR == static_cast<int>(Role::numerator) &&
              BALLAST_NORMALISER == static_cast<int>(Role::normaliser));
static_assert(BALLAST_STORE_BF16 == static_cast<int>(StorageType::bf16) &&
              BALLAST_STORE_F16 == static_cast<int>(StorageType::f16) &&
              BALLAST_STORE_INT8 == static_cast<int>(StorageType::int8) &&
              BALLAST_STORE_INT4 == static_cast<int>(StorageType::int4) &&
              BALLAST_STORE_Q2 == static_cast<int>(StorageType::q2));
static_assert(BALLAST_STREAM == static_cast<int>(Protocol::stream) &&
              BALLAST_ROLLING == static_cast<int>(Positions::rolling));

/// The enum of the library with the value of one of C's, whose order is the same. C may have stored
/// any number there, which C++ may not read as an enum.
template <typename To, typename From>
To convert(const From& value, To last, const char* name) {
  std::int32_t number = 0;
  static_assert(sizeof number == sizeof value);
  std::memcpy(&number, &value, sizeof number);
  require(number >= 0 && number <= static_cast<std::int32_t>(last), "{} {}: expected 0 to {}", name,
          number, static_cast<int>(last));
  return static_cast<To>(number);
}

}  // namespace

CacheShape shape_of(const ballast_cache_shape* given_shape) {
  const ballast_cache_shape s =
      read_struct(&given(given_shape, "shape"), ballast_cache_default_shape(), "shape");
  CacheShape shape;
  shape.layers = s.layers;
  shape.kv_heads = s.kv_heads;
  shape.queries_per_kv_head = s.queries_per_kv_head;
  shape.key_dim = s.key_dim;
  shape.value_dim = s.value_dim == 0 ? s.key_dim : s.value_dim;
  shape.logits = {scale_of(s.scale, s.key_dim), s.softcap, s.sliding_window};
  if (s.sliding_windows != nullptr) {
    shape.sliding_windows.assign(s.sliding_windows, s.sliding_windows + s.layers);
  }
  if (s.alibi_slopes != nullptr) {
    shape.alibi_slopes.assign(s.alibi_slopes, s.alibi_slopes + s.kv_heads * s.queries_per_kv_head);
  }
  if (s.rotary_frequencies != nullptr) {
    shape.rotary.frequencies.assign(s.rotary_frequencies, s.rotary_frequencies + s.rotary_count);
  }
  shape.rotary.magnitude = s.rotary_magnitude;
  shape.rotary.pairs = s.rotary_pairs;
  return shape;
}

MutableHeadsView view_of(const ballast_heads* heads, const char* name) {
  if (heads == nullptr) return {};
  return {heads->data,       convert(heads->type, ElementType::bf16, name),
          heads->tokens,     heads->heads,
          heads->dim,        heads->token_stride,
          heads->head_stride};
}

CacheOptions cache_options(const ballast_cache_params* params, const Model* model) {
  const ballast_cache_params p = read_struct(params, ballast_cache_default_params(), "params");
  const std::string_view method = p.method == nullptr ? "" : p.method;
  const std::string_view bytes = p.bytes == nullptr ? "" : p.bytes;
  CacheOptions options;
  options.policy = parse_policy(method, bytes, model);
  options.protocol = convert(p.protocol, Protocol::stream, "protocol");
  options.positions = convert(p.positions, Positions::rolling, "positions");
  options.key_type = convert(p.key_type, StorageType::q2, "key_type");
  options.value_type = convert(p.value_type, StorageType::q2, "value_type");
  options.seed = p.seed;
  options.expected_tokens = p.expected_tokens;
  options.pool = make_pool(p.threads);
  options.check_finite = p.check_finite;
  return choose_later(std::move(options), method, bytes, model);
}

void log_reports(const Cache& cache) {
  for (const std::string& line : reports_of(cache)) log(BALLAST_LOG_WARNING, line.c_str());
}

}  // namespace ballast::c

using namespace ballast;     // NOLINT
using namespace ballast::c;  // NOLINT

ballast_attention_params ballast_attention_default_params(void) {
  ballast_attention_params params = {};
  params.size = sizeof(params);
  return params;
}

ballast_status ballast_attention(const ballast_attention_params* params, size_t m, size_t key_dim,
                                 size_t value_dim, const float* queries, const int32_t* positions,
                                 const ballast_segment* segments, size_t count, float* out) {
  return guarded([&] {
    const ballast_attention_params p =
        read_struct(params, ballast_attention_default_params(), "params");
    require(m == 0 || (queries != nullptr && out != nullptr),
            "queries or out is NULL, but there are {} queries", m);
    require(count == 0 || segments != nullptr, "segments is NULL, but there are {}", count);
    std::vector<Segment> runs;
    for (std::size_t i = 0; i < count; ++i) {
      const ballast_segment& s = segments[i];
      Segment run;
      run.role = convert(s.role, Role::normaliser, "role");
      const bool values = run.role != Role::normaliser;
      require(s.entries == 0 || (s.keys != nullptr && (s.values != nullptr || !values)),
              "segment {}: {} entries without keys or values", i, s.entries);
      run.keys = view_f32({s.keys, s.entries, key_dim});
      if (values) run.values = view_f32({s.values, s.entries, value_dim});
      run.log_weights = s.log_weights;
      run.positions = s.positions;
      run.first_position = s.first_position;
      if (s.entries > 0) runs.push_back(run);
    }
    Queries q{{queries, m, key_dim}, {}, {}};
    if (positions != nullptr) q.positions = {positions, m};
    attend(q, runs, {scale_of(p.scale, key_dim), p.softcap, p.sliding_window}, {out, m, value_dim});
  });
}

ballast_cache_shape ballast_cache_default_shape(void) {
  ballast_cache_shape shape = {};
  shape.size = sizeof(shape);
  shape.layers = shape.kv_heads = shape.queries_per_kv_head = 1;
  shape.rotary_magnitude = 1.0f;
  return shape;
}

ballast_cache_params ballast_cache_default_params(void) {
  ballast_cache_params params = {};
  params.size = sizeof(params);
  params.key_type = params.value_type = BALLAST_STORE_BF16;
  params.check_finite = true;
  return params;
}

ballast_heads ballast_heads_token_major(void* data, ballast_element type, size_t tokens,
                                        size_t heads, size_t dim) {
  return {data, type, tokens, heads, dim, heads * dim, dim};
}

ballast_heads ballast_heads_head_major(void* data, ballast_element type, size_t tokens,
                                       size_t heads, size_t dim) {
  return {data, type, tokens, heads, dim, dim, tokens * dim};
}

ballast_status ballast_cache_new(const ballast_cache_shape* shape,
                                 const ballast_cache_params* params, ballast_cache** out) {
  return guarded([&] {
    given(out, "out");
    *out = new ballast_cache(Cache(shape_of(shape), cache_options(params)));
  });
}

void ballast_cache_free(ballast_cache* cache) { delete cache; }

ballast_status ballast_cache_clone(const ballast_cache* cache, ballast_cache** out) {
  return guarded([&] {
    given(out, "out");
    *out = new ballast_cache(given(cache, "cache").cache.clone());
  });
}

ballast_status ballast_cache_forward(ballast_cache* cache, size_t layer, const ballast_heads* keys,
                                     const ballast_heads* values, const ballast_heads* queries,
                                     const ballast_heads* out) {
  return guarded([&] {
    given(cache, "cache")
        .cache.forward(layer, view_of(&given(keys, "keys"), "keys.type"),
                       view_of(&given(values, "values"), "values.type"),
                       view_of(queries, "queries.type"), view_of(out, "out.type"));
  });
}

ballast_status ballast_cache_finish_prompt(ballast_cache* cache) {
  return guarded([&] {
    given(cache, "cache").cache.finish_prompt();
    log_reports(cache->cache);
  });
}

bool ballast_cache_needs_replay(const ballast_cache* cache) {
  return cache != nullptr && scoring_of(cache->cache).needs_replay();
}

ballast_status ballast_cache_start_replay(ballast_cache* cache, size_t layer,
                                          const float* output_grams) {
  return guarded([&] {
    Cache& c = given(cache, "cache").cache;
    const std::size_t dim = c.shape().value_dim;
    const std::size_t heads = c.shape().kv_heads * c.shape().queries_per_kv_head;
    scoring_of(c).start_replay(layer, output_grams == nullptr
                                          ? ConstMatrix()
                                          : ConstMatrix{output_grams, heads * dim, dim});
  });
}

ballast_status ballast_cache_replay(ballast_cache* cache, size_t layer, size_t tokens,
                                    const float* keys, const float* values, const float* queries,
                                    const float* query_weights, float* out) {
  return guarded([&] {
    Cache& c = given(cache, "cache").cache;
    const CacheShape& s = c.shape();
    const std::size_t heads = s.kv_heads * s.queries_per_kv_head;
    std::span<const float> weights;
    if (query_weights != nullptr) weights = {query_weights, tokens};
    scoring_of(c).replay(layer, {&given(keys, "keys"), tokens, s.kv_heads * s.key_dim},
                         {&given(values, "values"), tokens, s.kv_heads * s.value_dim},
                         {&given(queries, "queries"), tokens, heads * s.key_dim}, weights,
                         {&given(out, "out"), tokens, heads * s.value_dim});
  });
}

ballast_status ballast_cache_truncate(ballast_cache* cache, size_t tokens) {
  return guarded([&] { given(cache, "cache").cache.truncate(tokens); });
}

ballast_status ballast_cache_reserve(ballast_cache* cache, size_t tokens) {
  return guarded([&] { given(cache, "cache").cache.reserve(tokens); });
}

size_t ballast_cache_tokens(const ballast_cache* cache, size_t layer) {
  return cache != nullptr && layer < cache->cache.shape().layers ? cache->cache.tokens(layer) : 0;
}

size_t ballast_cache_entries(const ballast_cache* cache, size_t layer) {
  return cache != nullptr && layer < cache->cache.shape().layers ? cache->cache.entries(layer) : 0;
}

ballast_status ballast_cache_get_bytes(const ballast_cache* cache, ballast_cache_bytes* out) {
  return guarded([&] {
    const CacheBytes b = given(cache, "cache").cache.bytes();
    write_struct<ballast_cache_bytes>({sizeof(ballast_cache_bytes), b.total(), b.used(), b.sink,
                                       b.summary, b.window, b.attention_stats, b.rotary, b.room},
                                      out, "out");
  });
}

ballast_status ballast_cache_kept(const ballast_cache* cache, size_t layer, size_t head,
                                  ballast_kept* out, size_t capacity, size_t* count) {
  return guarded([&] {
    std::vector<ballast_kept> kept;
    for (const KeptEntry& e : given(cache, "cache").cache.kept(layer, head)) {
      kept.push_back({e.position, e.weight, e.normaliser_weight});
    }
    write_array(kept.data(), kept.size(), out, capacity, count, "kept entries");
  });
}

ballast_status ballast_cache_save(const ballast_cache* cache, const char* path) {
  return guarded([&] { given(cache, "cache").cache.save(&given(path, "path")); });
}

ballast_status ballast_cache_load(const char* path, ballast_cache** out) {
  return guarded([&] {
    given(out, "out");
    *out = new ballast_cache(Cache::load(&given(path, "path")));
  });
}
