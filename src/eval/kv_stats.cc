#include "eval/kv_stats.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>

#include "base/parallel.h"
#include "eval/clusters.h"
#include "eval/head_attention.h"
#include "eval/norms.h"

namespace ballast {
namespace {

constexpr std::size_t kSampledKeys = 2048;
constexpr std::size_t kSampledQueries = 32;

using Radii = std::array<double, KvLayerStats::kCentres.size()>;

/// The largest distance left at each of kCentres.
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

/// Of one query's softmax weights.
Attention describe(std::vector<float> weights) {
  Attention out;
  auto share = [](auto begin, auto end) { return std::accumulate(begin, end, 0.0); };
  const std::size_t n = weights.size();
  out.first4 =
      share(weights.begin(), weights.begin() + static_cast<long>(std::min<std::size_t>(n, 4)));
  out.last256 =
      share(weights.end() - static_cast<long>(std::min<std::size_t>(n, 256)), weights.end());
  for (float w : weights) {
    if (w > 0) out.entropy -= w * std::log(double{w});
  }
  std::ranges::sort(weights, std::greater<>());
  out.largest = weights[0];
  out.top1 = share(weights.begin(), weights.begin() + static_cast<long>((n + 99) / 100));
  return out;
}

struct HeadStats {
  KvNorms norms;
  Radii radius{};
  Attention attention;
  double queries = 0;
};

/// The queries of one KV head's group at a token each.
void ask(const HeadAttention& head, std::size_t t, HeadStats& out) {
  GroupQueries queries = head.queries(t, 1);
  Segment seen;
  seen.keys = view_f32(head.keys().view().slice(0, t + 1));
  seen.values = view_f32(head.values().view().slice(0, t + 1));
  for (std::size_t g = 0; g < queries.rows.rows(); ++g) {
    Matrix unused(1, head.values().cols());
    std::vector<float> weights(t + 1, 0.0f);
    attend_with_mass({queries.rows.view().slice(g, 1), {}, {}}, {&seen, 1}, head.logits(),
                     unused.view(), weights);
    out.attention.add(describe(std::move(weights)));
    out.queries += 1;
  }
}

HeadStats measure_head(const KvSource& source, std::size_t layer, std::size_t kv_head) {
  const KvShape& s = source.shape();
  const HeadAttention head(source, layer, kv_head);
  HeadStats out;
  out.norms = measure_norms(source, layer, kv_head);
  out.radius = centre_radii(head.keys());
  const std::size_t half = s.tokens / 2, asked = std::min(s.tokens - half, kSampledQueries);
  for (std::size_t i = 1; i <= asked; ++i) ask(head, half + i * (s.tokens - half) / asked - 1, out);
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
  HeadStats all;
  for (const HeadStats& head : of_head) {
    all.norms.add(head.norms);
    all.attention.add(head.attention);
    all.queries += head.queries;
    for (std::size_t k = 0; k < all.radius.size(); ++k) {
      all.radius[k] += head.radius[k] / static_cast<double>(heads);
    }
  }
  KvLayerStats out;
  out.query_norm = all.norms.query.moments();
  out.key_norm = all.norms.key.moments();
  out.shifted_norm = all.norms.shifted.moments();
  out.value_norm = all.norms.value.moments();
  for (std::size_t k = 0; k < out.radius.size(); ++k) {
    out.radius[k] = out.shifted_norm.mean > 0 ? all.radius[k] / out.shifted_norm.mean : 0;
  }
  out.first4 = all.attention.first4 / all.queries;
  out.last256 = all.attention.last256 / all.queries;
  out.top1 = all.attention.top1 / all.queries;
  out.largest = all.attention.largest / all.queries;
  out.effective = std::exp(all.attention.entropy / all.queries);
  return out;
}

}  // namespace ballast
