#include "eval/single_layer/heavy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
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
  std::vector<double> of_token;    ///< the same by token
  KeptAttention kept;
};

/// Tokens whose kept attention is simulated: the work grows with their square.
constexpr std::size_t kMostKept = 1024;

/// Weights are e^logit over a common sum: only differences of logits matter.
std::size_t count_small(std::span<const double> logits) {
  const double least = *std::ranges::max_element(logits) + std::log(HeavyStats::kThreshold);
  return static_cast<std::size_t>(
      std::ranges::count_if(logits, [&](double x) { return x < least; }));
}

/// Logits of a query over the first `count` keys, in float64.
std::vector<double> logits_of(const HeadAttention& head, std::span<const float> query,
                              std::size_t count) {
  std::vector<double> out(count);
  const double cap = head.logits().softcap;
  for (std::size_t k = 0; k < count; ++k) {
    const double dot = std::inner_product(query.begin(), query.end(), head.keys()[k].begin(), 0.0);
    const double logit = dot * double{head.logits().scale};
    out[k] = cap > 0 ? cap * std::tanh(logit / cap) : logit;
  }
  return out;
}

/// Causal attention of the first tokens, mean over the group.
std::vector<std::vector<double>> causal_rows(const KvSource& source, const HeadAttention& head) {
  const std::size_t group = source.shape().group();
  std::vector<std::vector<double>> rows;
  for (std::size_t t = 0; t < std::min(source.shape().tokens, kMostKept); ++t) {
    const GroupQueries queries = head.queries(t, 1);
    std::vector<double> row(t + 1, 0.0);
    for (std::size_t g = 0; g < group; ++g) {
      std::vector<double> w = logits_of(head, queries.rows[g], t + 1);
      const double largest = *std::ranges::max_element(w);
      double sum = 0;
      for (double& x : w) sum += x = std::exp(x - largest);
      for (std::size_t i = 0; i <= t; ++i) row[i] += w[i] / sum / static_cast<double>(group);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Head measure_head(const KvSource& source, std::size_t layer, std::size_t kv_head,
                  std::size_t queries, double kept) {
  const KvShape& s = source.shape();
  const HeadAttention head(source, layer, kv_head);
  Head out;
  out.small.assign(s.group(), 0.0);
  out.all.assign(s.group(), 0.0);
  const std::size_t asked = std::min(queries, s.tokens);
  for (std::size_t i = 1; i <= asked; ++i) {
    const std::size_t t = i * s.tokens / asked - 1;
    const GroupQueries rows = head.queries(t, 1);
    for (std::size_t g = 0; g < s.group(); ++g) {
      const std::vector<double> logits = logits_of(head, rows.rows[g], t + 1);
      out.small[g] += static_cast<double>(count_small(logits));
      out.all[g] += static_cast<double>(t + 1);
    }
  }
  const std::vector<float> attention_sum = head.attention_sum(0, s.tokens);
  out.of_token.assign(attention_sum.begin(), attention_sum.end());
  const double sum = std::accumulate(out.of_token.begin(), out.of_token.end(), 0.0);
  for (double& x : out.of_token) x /= sum;
  out.scores = out.of_token;
  std::ranges::sort(out.scores, std::greater<>());
  const auto rows = causal_rows(source, head);
  out.kept = kept_attention(
      rows, static_cast<std::size_t>(std::lround(kept * static_cast<double>(rows.size()))));
  return out;
}

/// H2O's cache over the rows: `sums(t)` says what query t adds to each token's score. Returns the
/// mean share of exact attention that is kept.
template <typename Sums>
double walk(std::span<const std::vector<double>> rows, std::size_t keep, const Sums& sums) {
  const std::size_t recent = keep / 2;
  std::vector<std::size_t> held;
  std::vector<double> score(rows.size(), 0.0);
  double share = 0;
  std::size_t counted = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    held.push_back(t);
    double mass = 0;
    for (std::size_t i : held) mass += rows[t][i];
    if (t >= keep) {
      share += mass;
      ++counted;
    }
    sums(t, held, mass, score);
    if (held.size() <= keep) continue;
    std::size_t least = held.size();
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i] + recent > t) break;
      if (least == held.size() || score[held[i]] < score[held[least]]) least = i;
    }
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(least == held.size() ? 0 : least));
  }
  return counted == 0 ? 1 : share / static_cast<double>(counted);
}

/// Ranks from 0; equal numbers share the mean of theirs.
std::vector<double> ranks_of(std::span<const double> x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> out(x.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && x[order[end]] == x[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      out[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
    begin = end;
  }
  return out;
}

double correlation_of(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  const double mx = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double my = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace

KeptAttention kept_attention(std::span<const std::vector<double>> rows, std::size_t keep) {
  KeptAttention out{1, 1, 1};
  if (rows.size() <= keep) return out;
  out.local = 0;
  std::vector<double> total(rows.size(), 0.0);
  for (std::size_t t = 0; t < rows.size(); ++t) {
    for (std::size_t i = 0; i <= t; ++i) total[i] += rows[t][i];
    if (t < keep) continue;
    for (std::size_t i = t - keep; i <= t; ++i) out.local += rows[t][i];
  }
  out.local /= static_cast<double>(rows.size() - keep);
  out.h2o = walk(rows, keep, [&](std::size_t t, const auto& held, double mass, auto& score) {
    for (std::size_t i : held) score[i] += mass > 0 ? rows[t][i] / mass : 0;
  });
  out.global = walk(rows, keep,
                    [&](std::size_t t, const auto&, double, auto& score) { score[t] = total[t]; });
  return out;
}

WordHeaviness word_heaviness(std::span<const std::int32_t> words, std::span<const double> attention,
                             std::size_t window) {
  std::map<std::int32_t, std::pair<double, double>> found;  // attention, co-occurrences
  for (std::size_t t = 0; t < words.size(); ++t) {
    auto& [sum, times] = found[words[t]];
    sum += attention[t];
    const std::size_t end = std::min(words.size(), t + window + 1);
    for (std::size_t i = t - std::min(t, window); i < end; ++i) times += words[i] != words[t];
  }
  WordHeaviness out;
  out.words = found.size();
  std::vector<double> sums, times;
  for (const auto& [word, both] : found) {
    sums.push_back(both.first);
    times.push_back(both.second);
  }
  out.correlation = correlation_of(ranks_of(sums), ranks_of(times));
  std::ranges::sort(sums, std::greater<>());
  std::vector<double> ranks, heights;
  for (std::size_t r = 1; r <= sums.size(); r *= 2) {
    ranks.push_back(static_cast<double>(r));
    heights.push_back(sums[r - 1]);
  }
  if (ranks.size() > 1) out.slope = log_slope(ranks, heights);
  return out;
}

HeavyStats measure_heavy(const KvSource& source, std::size_t layer,
                         std::span<const std::size_t> kv_heads, std::size_t queries,
                         const Advance& advance, double kept) {
  require(queries > 0, "--queries must be at least 1");
  require(source.shape().tokens <= HeavyStats::kMostTokens,
          "{}: {} tokens, at most {} here: accumulated attention takes the square of them; capture "
          "a shorter text (capture --tokens)",
          source.name(), source.shape().tokens, HeavyStats::kMostTokens);
  std::vector<Head> heads(kv_heads.size());
  std::mutex mutex;
  double done = 0;
  parallel_for(kv_heads.size(), [&](std::size_t h) {
    heads[h] = measure_head(source, layer, kv_heads[h], queries, kept);
    std::lock_guard lock(mutex);
    if (advance) advance(++done / static_cast<double>(kv_heads.size()));
  });
  const std::size_t tokens = source.shape().tokens;
  const auto count = static_cast<double>(heads.size());
  HeavyStats out;
  MomentSums sparsity;
  for (std::size_t r = 1; r <= tokens; r *= 2) out.ranks.push_back(r);
  out.scores.assign(out.ranks.size(), 0.0);
  out.of_token.assign(tokens, 0.0);
  for (const Head& head : heads) {
    for (std::size_t t = 0; t < tokens; ++t) out.of_token[t] += head.of_token[t] / count;
    out.local += head.kept.local / count;
    out.h2o += head.kept.h2o / count;
    out.global += head.kept.global / count;
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
