#include "experiments/attention/compress.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ballast/engine/safetensors.h"
#include "ballast/scoring.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "cache/byte_budget.h"
#include "cache/mean_entries.h"
#include "experiments/attention/head_attention.h"

namespace ballast {
namespace {

using Part = KvSource::Part;

/// All heads' rows of `count` tokens, heads side by side.
Matrix read_tokens(const KvSource& source, Part part, std::size_t layer, std::size_t first,
                   std::size_t count) {
  const KvShape& s = source.shape();
  const std::size_t heads = part == Part::query ? s.heads : s.kv_heads;
  const std::size_t dim = part == Part::value ? s.value_dim : s.key_dim;
  Matrix out(count, heads * dim);
  for (std::size_t h = 0; h < heads; ++h) {
    source.read(part, layer, h, first, {out.data() + h * dim, count, dim, heads * dim});
  }
  return out;
}

void read_layer(const KvSource& source, std::size_t layer, Cache& cache,
                const std::function<void(double)>& advance) {
  const KvShape& s = source.shape();
  // Attention is computed only for methods that need queries.
  const bool watches = cache.options().needs_queries();
  constexpr std::size_t kRows = 512;
  for (std::size_t t = 0; t < s.tokens; t += kRows) {
    const std::size_t count = std::min(kRows, s.tokens - t);
    const Matrix keys = read_tokens(source, Part::key, layer, t, count);
    const Matrix values = read_tokens(source, Part::value, layer, t, count);
    // Queries are always read, because reading checks that they are finite.
    const Matrix queries = read_tokens(source, Part::query, layer, t, count);
    Matrix out(watches ? count : 0, s.heads * s.value_dim);
    cache.forward(layer, keys.view(), values.view(), queries.view().slice(0, out.rows()),
                  out.view());
    advance(static_cast<double>(t + count) / static_cast<double>(s.tokens));
  }
}

/// Whether the source has scores of the kind that the method wants.
bool has_scores(const KvSource& source, const Policy& policy) {
  if (policy.needs().replay == ReplayScore::none) return false;
  return source.score_name() == to_string(policy.needs().replay);
}

/// The scores of the source, or those of self-attention: the queries of the first `asked` tokens
/// see all of the text.
void score_layer(const KvSource& source, std::size_t layer, std::size_t asked, Cache& cache) {
  const KvShape& s = source.shape();
  if (has_scores(source, cache.options().policy)) {
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      scoring_of(cache).set_scores(layer, h, source.scores(layer, h));
    }
    return;
  }
  scoring_of(cache).start_replay(layer, {});
  const auto chunk = static_cast<std::size_t>(cache.options().policy.integer("chunk"));
  for (std::size_t t = 0; t < asked; t += chunk) {
    const std::size_t count = std::min(chunk, asked - t);
    Matrix out(count, s.heads * s.value_dim);
    scoring_of(cache).replay(layer, read_tokens(source, Part::key, layer, t, count).view(),
                             read_tokens(source, Part::value, layer, t, count).view(),
                             read_tokens(source, Part::query, layer, t, count).view(), {},
                             out.view());
  }
}

void measure_layer_error(const KvSource& source, std::size_t layer, const Cache& cache,
                         std::size_t queries, CompressedLayer& out) {
  const KvShape& s = source.shape();
  std::vector<std::vector<double>> errors(s.kv_heads);
  parallel_for(s.kv_heads, [&](std::size_t h) {
    const HeadAttention head(source, layer, h);
    GroupQueries asked = head.queries(s.tokens - queries, queries);
    std::ranges::fill(asked.positions, static_cast<Position>(s.tokens - 1));
    Matrix estimate(asked.rows.rows(), s.value_dim);
    attend(asked.view(), cache.segments(layer, h), head.logits(), estimate.view());
    errors[h] = relative_errors(estimate, head.exact(asked, s.tokens), s.group());
  });
  for (const auto& of_head : errors) {
    for (double e : of_head) {
      out.error += e / static_cast<double>(s.heads);
      out.worst = std::max(out.worst, e);
    }
  }
}

}  // namespace

Compressed compress(const KvSource& source, CacheOptions options, std::size_t queries,
                    const Advance& advance) {
  const KvShape& s = source.shape();
  CacheShape shape;
  shape.layers = s.layers;
  shape.kv_heads = s.kv_heads;
  shape.queries_per_kv_head = s.group();
  shape.key_dim = s.key_dim;
  shape.value_dim = s.value_dim;
  shape.logits = source.logits();
  shape.rotary = source.rotary();
  options.expected_tokens = s.tokens;
  const bool whole = options.policy.info().global_budget;
  require(!whole || options.protocol == Protocol::prefill,
          "method {}: in stream a model reads each chunk again; use --protocol prefill",
          options.policy.info().name);
  require_bytes(shape, options, s.tokens);
  Compressed out{Cache(shape, options), {}, std::min(queries, s.tokens), {}};
  for (std::size_t l = 0; l < s.layers; ++l) {
    CompressedLayer& layer = out.layers.emplace_back();
    const Stopwatch watch;
    read_layer(source, l, out.cache, [&](double done) {
      if (advance) advance((static_cast<double>(l) + done) / static_cast<double>(s.layers));
    });
    if (!whole) out.cache.finish_prompt(l);
    layer.seconds = watch.seconds();
  }
  if (whole) {
    if (scoring_of(out.cache).needs_replay()) {
      out.scores = has_scores(source, options.policy) ? source.score_name() : "self-attention";
      for (std::size_t l = 0; l < s.layers; ++l) {
        const Stopwatch watch;
        // The queries of the error are not known to it, unless there are no others.
        const std::size_t asked = s.tokens - out.queries;
        score_layer(source, l, asked > 0 ? asked : s.tokens, out.cache);
        out.layers[l].seconds += watch.seconds();
      }
    }
    out.cache.finish_prompt();
  }
  for (std::size_t l = 0; l < s.layers; ++l) {
    out.layers[l].entries = layer_entries(out.cache, l);
    measure_layer_error(source, l, out.cache, out.queries, out.layers[l]);
  }
  return out;
}

namespace {

struct Entry {
  Position position;
  const Segment* segment;
  std::size_t row;

  float weight(Role without) const {
    if (segment->role == without) return 0;
    return segment->log_weights == nullptr ? 1 : std::exp(segment->log_weights[row]);
  }
};

std::vector<Entry> entries_of(const std::vector<Segment>& segments) {
  std::vector<Entry> out;
  for (const Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.keys.rows; ++i) {
      Position position = -1;
      if (segment.positions != nullptr) {
        position = segment.positions[i];
      } else if (segment.first_position >= 0) {
        position = segment.first_position + static_cast<Position>(i);
      }
      out.push_back({position, &segment, i});
    }
  }
  std::ranges::stable_sort(out, {}, &Entry::position);
  return out;
}

void write_entries(SafetensorsWriter& writer, const std::vector<Entry>& entries, const KvShape& s) {
  std::vector<float> row(std::max(s.key_dim, s.value_dim));
  for (const Entry& e : entries) writer.write(std::as_bytes(std::span(&e.position, 1)));
  for (Role without : {Role::normaliser, Role::numerator}) {
    for (const Entry& e : entries) {
      const float weight = e.weight(without);
      writer.write(std::span<const float>(&weight, 1));
    }
  }
  for (const Entry& e : entries) {
    const std::span<float> key(row.data(), s.key_dim);
    e.segment->keys.decode(e.row, key);
    writer.write(std::span<const float>(key));
  }
  for (const Entry& e : entries) {
    const std::span<float> value(row.data(), s.value_dim);
    if (e.segment->role == Role::normaliser) {
      std::ranges::fill(value, 0.0f);
    } else {
      e.segment->values.decode(e.row, value);
    }
    writer.write(std::span<const float>(value));
  }
}

}  // namespace

void write_kept(const Cache& cache, const KvSource& source, const std::filesystem::path& path) {
  const KvShape& s = source.shape();
  std::vector<SafetensorsWriter::Declaration> tensors;
  std::vector<std::vector<Segment>> segments;
  std::vector<std::vector<Entry>> entries;
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      segments.push_back(cache.segments(l, h));
      entries.push_back(entries_of(segments.back()));
      const std::size_t n = entries.back().size();
      const std::string name = fmt::format("layer.{}.head.{}.", source.layer_number(l), h);
      tensors.push_back({name + "positions", TensorType::i32, {n}});
      tensors.push_back({name + "weights", TensorType::f32, {n}});
      tensors.push_back({name + "normaliser_weights", TensorType::f32, {n}});
      tensors.push_back({name + "k", TensorType::f32, {n, s.key_dim}});
      tensors.push_back({name + "v", TensorType::f32, {n, s.value_dim}});
    }
  }
  const CacheOptions& o = cache.options();
  SafetensorsWriter writer(path, tensors,
                           {{"method", o.policy.to_string()},
                            {"protocol", std::string(to_string(o.protocol))},
                            {"seed", std::to_string(o.seed)},
                            {"tokens", std::to_string(s.tokens)}});
  for (const auto& of_head : entries) write_entries(writer, of_head, s);
  writer.commit();
}

}  // namespace ballast
