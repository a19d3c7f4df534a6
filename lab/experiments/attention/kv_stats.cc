#include "experiments/attention/kv_stats.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>

#include "ballast/row_mean.h"
#include "base/thread_pool.h"
#include "experiments/attention/clusters.h"
#include "experiments/attention/head_attention.h"
#include "experiments/attention/norms.h"

namespace ballast {
namespace {

constexpr std::size_t kSampledKeys = 2048;
constexpr std::size_t kSampledQueries = 32;

using Radii = std::array<double, KvLayerStats::kCentres.size()>;

/// The largest distance to a centre at each of kCentres.
Radii centre_radii(const Matrix& keys) {
  const std::size_t most = KvLayerStats::kCentres.back();
  const GreedyCentres found = greedy_centres(evenly_spaced(keys, kSampledKeys), most);
  Radii out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t k = std::min(KvLayerStats::kCentres[i], found.radii.size());
    out[i] = found.radii[k - 1];
  }
  return out;
}

struct Attention {
  double first4 = 0, last256 = 0, top1 = 0, largest = 0, entropy = 0;

  void add(const Attention& other) {
    first4 += other.first4;
    last256 += other.last256;
    top1 += other.top1;
    largest += other.largest;
    entropy += other.entropy;
  }
};

/// Adds the statistics of one query's softmax weights over entries at these positions.
Attention describe(std::vector<float> weights, std::span<const Position> positions) {
  Attention out;
  const std::size_t n = weights.size();
  const Position last = n == 0 ? 0 : *std::ranges::max_element(positions.first(n));
  for (std::size_t i = 0; i < n; ++i) {
    if (positions[i] < 4) out.first4 += weights[i];
    if (positions[i] > last - 256) out.last256 += weights[i];
    if (weights[i] > 0) out.entropy -= weights[i] * std::log(double{weights[i]});
  }
  std::ranges::sort(weights, std::greater<>());
  const auto hundredth = weights.begin() + static_cast<long>((n + 99) / 100);
  out.top1 = std::accumulate(weights.begin(), hundredth, 0.0);
  if (n > 0) out.largest = weights[0];
  return out;
}

struct HeadStats {
  KvNorms norms;
  MomentSums mean, turned;
  Radii radius{};
  Attention attention;
  double queries = 0;
};

double length(std::span<const float> row) {
  double square = 0;
  for (float x : row) square += double{x} * double{x};
  return std::sqrt(square);
}

/// The queries of one KV head's group, one token a query.
void ask(const HeadAttention& head, std::size_t t, std::span<const Position> positions,
         HeadStats& out) {
  GroupQueries queries = head.queries(t, 1);
  Segment seen;
  seen.keys = view_f32(head.keys().view().slice(0, t + 1));
  seen.values = view_f32(head.values().view().slice(0, t + 1));
  for (std::size_t g = 0; g < queries.rows.rows(); ++g) {
    Matrix unused(1, head.values().cols());
    std::vector<float> weights(t + 1, 0.0f);
    attend_with_attention_sum({queries.rows.view().slice(g, 1), {}, {}}, {&seen, 1}, head.logits(),
                              unused.view(), weights);
    out.attention.add(describe(std::move(weights), positions));
    out.queries += 1;
  }
}

HeadStats measure_head(const KvSource& source, std::size_t layer, std::size_t kv_head) {
  const KvShape& s = source.shape();
  const HeadAttention head(source, layer, kv_head);
  HeadStats out;
  out.norms = measure_norms(source, layer, kv_head);
  out.mean.add(length(head.key_mean()->mean()));
  std::vector<float> place(s.key_dim);
  for (std::size_t t = 0; t < s.tokens; ++t) {
    head.key_mean()->at(static_cast<Position>(t), place.data());
    for (std::size_t c = 0; c < place.size(); ++c) place[c] -= head.keys()[t][c];
    out.turned.add(length(place));
  }
  out.radius = centre_radii(head.keys());
  const std::size_t half = s.tokens / 2, asked = std::min(s.tokens - half, kSampledQueries);
  std::vector<Position> positions(s.tokens);
  std::iota(positions.begin(), positions.end(), 0);
  for (std::size_t i = 1; i <= asked; ++i) {
    ask(head, half + i * (s.tokens - half) / asked - 1, positions, out);
  }
  return out;
}

/// Up to `count` keys, evenly spaced over the segments one after the other.
Matrix spaced_keys(const std::vector<Segment>& segments, std::size_t rows, std::size_t dim,
                   std::size_t count) {
  Matrix out(std::min(count, rows), dim);
  std::size_t next = 0, before = 0;
  for (const Segment& segment : segments) {
    for (; next < out.rows(); ++next) {
      const std::size_t at = next * rows / out.rows() - before;
      if (at >= segment.keys.rows) break;
      segment.keys.decode(at, out[next]);
    }
    before += segment.keys.rows;
  }
  return out;
}

/// `asked`: how many weights of attention the head may cost.
HeadStats measure_head(const Cache& cache, std::size_t layer, std::size_t kv_head,
                       std::size_t asked) {
  const std::vector<Segment> segments = cache.segments(layer, kv_head);
  HeadStats out;
  std::vector<Position> positions;
  for (const Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.keys.rows; ++i) {
      positions.push_back(segment.positions != nullptr
                              ? segment.positions[i]
                              : segment.first_position + static_cast<Position>(i));
    }
  }
  if (positions.empty()) return out;
  out.norms = measure_norms(segments);
  const RowMean* mean = nullptr;
  std::vector<float> difference(cache.shape().key_dim);
  for (const Segment& segment : segments) {
    if (segment.keys.mean == nullptr) continue;
    mean = segment.keys.mean;
    for (std::size_t i = 0; i < segment.keys.rows; ++i) {
      segment.keys.decode_difference(i, difference);
      out.turned.add(length(difference));
    }
  }
  if (mean != nullptr) out.mean.add(length(mean->mean()));
  out.radius =
      centre_radii(spaced_keys(segments, positions.size(), cache.shape().key_dim, kSampledKeys));
  const std::size_t queries = std::max<std::size_t>(1, asked / positions.size());
  const Matrix attention = latest_attention(cache, layer, kv_head, queries);
  for (std::size_t q = 0; q < attention.rows(); ++q) {
    out.attention.add(describe({attention[q].begin(), attention[q].end()}, positions));
    out.queries += 1;
  }
  return out;
}

/// Combines the heads of a layer.
KvLayerStats combine(const std::vector<HeadStats>& of_head) {
  HeadStats all;
  for (const HeadStats& head : of_head) {
    all.norms.add(head.norms);
    all.mean.add(head.mean);
    all.turned.add(head.turned);
    all.attention.add(head.attention);
    all.queries += head.queries;
    for (std::size_t k = 0; k < all.radius.size(); ++k) {
      all.radius[k] += head.radius[k] / static_cast<double>(of_head.size());
    }
  }
  KvLayerStats out;
  out.query_norm = all.norms.query.moments();
  out.key_norm = all.norms.key.moments();
  out.shifted_norm = all.norms.shifted.moments();
  out.value_norm = all.norms.value.moments();
  out.mean_norm = all.mean.moments();
  out.turned_norm = all.turned.moments();
  for (std::size_t k = 0; k < out.radius.size(); ++k) {
    out.radius[k] = out.shifted_norm.mean > 0 ? all.radius[k] / out.shifted_norm.mean : 0;
  }
  out.queries = all.queries;
  if (all.queries == 0) return out;
  out.first4 = all.attention.first4 / all.queries;
  out.last256 = all.attention.last256 / all.queries;
  out.top1 = all.attention.top1 / all.queries;
  out.largest = all.attention.largest / all.queries;
  out.effective = std::exp(all.attention.entropy / all.queries);
  return out;
}

}  // namespace

KvLayerStats measure_layer(const KvSource& source, std::size_t layer, const Advance& advance) {
  const std::size_t heads = source.shape().kv_heads;
  std::vector<HeadStats> of_head(heads);
  std::mutex mutex;
  double done = 0;
  parallel_for(heads, [&](std::size_t h) {
    of_head[h] = measure_head(source, layer, h);
    std::lock_guard lock(mutex);
    if (advance) advance(++done / static_cast<double>(heads));
  });
  return combine(of_head);
}

KvLayerStats measure_layer(const Cache& cache, std::size_t layer) {
  // A long cache with many queries noted is asked by some of them: some seconds, and 32 MiB a head.
  constexpr std::size_t kWeights = std::size_t{1} << 26, kWeightsAtOnce = std::size_t{1} << 23;
  const std::size_t heads = cache.shape().kv_heads;
  const std::size_t each = kWeights / (cache.shape().layers * heads);
  std::vector<HeadStats> of_head(heads);
  parallel_for(heads, [&](std::size_t h) {
    of_head[h] = measure_head(cache, layer, h, std::min(each, kWeightsAtOnce));
  });
  return combine(of_head);
}

}  // namespace ballast
