#include "eval/single_layer/heavy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "eval/single_layer/head_attention.h"
#include "eval/single_layer/memory_error.h"
#include "eval/single_layer/norms.h"

namespace ballast {
namespace {

struct Head {
  std::vector<double> small, all;  ///< entries that count as zero, and entries, by query head
  std::vector<double> scores;      ///< accumulated, largest first, of sum 1
};

/// Weights are e^logit over a common sum: only differences of logits matter.
std::size_t count_small(std::span<const double> logits) {
  const double least = *std::ranges::max_element(logits) + std::log(HeavyStats::kThreshold);
  return static_cast<std::size_t>(
      std::ranges::count_if(logits, [&](double x) { return x < least; }));
}

Head measure_head(const KvSource& source, std::size_t layer, std::size_t kv_head,
                  std::size_t queries) {
  const KvShape& s = source.shape();
  const HeadAttention head(source, layer, kv_head);
  Head out;
  out.small.assign(s.group(), 0.0);
  out.all.assign(s.group(), 0.0);
  const std::size_t asked = std::min(queries, s.tokens);
  std::vector<double> logits(s.tokens);
  for (std::size_t i = 1; i <= asked; ++i) {
    const std::size_t t = i * s.tokens / asked - 1;
    const GroupQueries rows = head.queries(t, 1);
    for (std::size_t g = 0; g < s.group(); ++g) {
      for (std::size_t k = 0; k <= t; ++k) {
        const double dot = std::inner_product(rows.rows[g].begin(), rows.rows[g].end(),
                                              head.keys()[k].begin(), 0.0);
        const double cap = head.logits().softcap;
        const double logit = dot * double{head.logits().scale};
        logits[k] = cap > 0 ? cap * std::tanh(logit / cap) : logit;
      }
      out.small[g] += static_cast<double>(count_small({logits.data(), t + 1}));
      out.all[g] += static_cast<double>(t + 1);
    }
  }
  const std::vector<float> attention_sum = head.attention_sum(0, s.tokens);
  out.scores.assign(attention_sum.begin(), attention_sum.end());
  std::ranges::sort(out.scores, std::greater<>());
  const double sum = std::accumulate(out.scores.begin(), out.scores.end(), 0.0);
  for (double& x : out.scores) x /= sum;
  return out;
}

}  // namespace

HeavyStats measure_heavy(const KvSource& source, std::size_t layer,
                         std::span<const std::size_t> kv_heads, std::size_t queries,
                         const Advance& advance) {
  require(queries > 0, "--queries must be at least 1");
  std::vector<Head> heads(kv_heads.size());
  std::mutex mutex;
  double done = 0;
  parallel_for(kv_heads.size(), [&](std::size_t h) {
    heads[h] = measure_head(source, layer, kv_heads[h], queries);
    std::lock_guard lock(mutex);
    if (advance) advance(++done / static_cast<double>(kv_heads.size()));
  });
  const std::size_t tokens = source.shape().tokens;
  const auto count = static_cast<double>(heads.size());
  HeavyStats out;
  MomentSums sparsity;
  for (std::size_t r = 1; r <= tokens; r *= 2) out.ranks.push_back(r);
  out.scores.assign(out.ranks.size(), 0.0);
  for (const Head& head : heads) {
    for (std::size_t g = 0; g < head.all.size(); ++g) sparsity.add(head.small[g] / head.all[g]);
    for (std::size_t p = 0; p < out.top.size(); ++p) {
      const double part = HeavyStats::kParts[p] * static_cast<double>(tokens);
      const auto most = std::max<long>(1, std::lround(part));
      out.top[p] += std::accumulate(head.scores.begin(), head.scores.begin() + most, 0.0) / count;
    }
    for (std::size_t i = 0; i < out.ranks.size(); ++i) {
      out.scores[i] += head.scores[out.ranks[i] - 1] / count;
    }
  }
  out.sparsity = sparsity.moments().mean;
  out.sparsity_deviation = sparsity.moments().deviation;
  const std::vector<double> ranks(out.ranks.begin(), out.ranks.end());
  out.slope = log_slope(ranks, out.scores);
  return out;
}

}  // namespace ballast
