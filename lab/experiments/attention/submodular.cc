// ballast eval submodular: the greedy set against all sets on small parts of real attention.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/fail.h"
#include "base/running_mean.h"
#include "base/thread_pool.h"
#include "experiments/attention/head_attention.h"
#include "experiments/attention/kv_parameters.h"
#include "experiments/attention/set_functions.h"
#include "experiments/attention/softmax_regression.h"
#include "experiments/experiment.h"

namespace ballast {
namespace {

struct Submodular {
  KvParameters source;
  std::size_t ground = 10;
  std::size_t keep = 4;
  std::size_t sets = 8;
  std::size_t queries = 16;

  void describe(Parameters& p) {
    source.describe(p);
    p.add("--ground", ground, "Tokens of a ground set, up to 16");
    p.add("--keep", keep, "Tokens that a set keeps");
    p.add("--sets", sets, "Ground sets of a KV head, evenly spaced over the text");
    p.add("--queries", queries, "Queries behind a ground set that it is judged by");
  }
};

constexpr std::array kFunctions = {"score", "coverage", "output"};

/// What one function of one ground set gave.
struct Found {
  double greedy = 0, h2o = 0;  ///< of the best set's value
  Diminishing diminishing;
};

/// Attention of tokens [first, first + count) of one query head over the ground set.
Matrix logits_of(const HeadAttention& head, std::size_t group, std::size_t ground,
                 std::size_t tokens, std::size_t first, std::size_t count) {
  const GroupQueries queries = head.queries(first, count);
  Matrix out(count, tokens);
  for (std::size_t q = 0; q < count; ++q) {
    const std::span<const float> query = queries.rows[q * group];
    for (std::size_t i = 0; i < tokens; ++i) {
      const std::span<const float> key = head.keys()[ground + i];
      const double dot = std::inner_product(query.begin(), query.end(), key.begin(), 0.0);
      const double cap = head.logits().softcap;
      const double logit = dot * double{head.logits().scale};
      out[q][i] = ground + i > first + q
                      ? -std::numeric_limits<float>::infinity()
                      : static_cast<float>(cap > 0 ? cap * std::tanh(logit / cap) : logit);
    }
  }
  return out;
}

std::array<Found, 3> measure_set(const Submodular& o, const HeadAttention& head, std::size_t group,
                                 std::size_t begin) {
  const auto attention = [&](std::size_t first, std::size_t count) {
    GroundAttention out{logits_of(head, group, begin, o.ground, first, count),
                        Matrix(o.ground, head.values().cols())};
    for (std::size_t i = 0; i < o.ground; ++i) {
      std::ranges::copy(head.values()[begin + i], out.values[i].begin());
    }
    return out;
  };
  const GroundAttention own = attention(begin, o.ground);
  const GroundAttention later = attention(begin + o.ground, o.queries);
  const std::uint32_t walked = h2o_set(own, o.keep);
  std::array<Found, 3> out;
  const SetFunction functions[] = {score_function(later), coverage_function(later),
                                   output_function(later)};
  for (std::size_t f = 0; f < out.size(); ++f) {
    const SetFunction& function = functions[f];
    const double best = function.value[best_set(function, o.keep)];
    // Greedy and the walk are as good as the best where nothing can be gained.
    const auto of_best = [&](std::uint32_t set) {
      return best > 0 ? function.value[set] / best : 1.0;
    };
    out[f] = {of_best(greedy_set(function, o.keep)), of_best(walked),
              diminishing_returns(function)};
  }
  return out;
}

Json steps_of(const NewtonPath& path) {
  return path.diverged ? Json("diverged") : Json(path.x.size() - 1);
}

/// Algorithm 4 on a head: which x makes softmax(Kx) the mean attention of the last queries? K: some
/// keys, evenly spaced, the longest of length 1; w = 3, which makes the problem convex.
Json measure_newton(const KvSource& source, std::size_t layer, std::size_t kv_head) {
  const HeadAttention head(source, layer, kv_head);
  const std::size_t tokens = source.shape().tokens, d = head.keys().cols();
  const std::size_t n = std::min<std::size_t>(tokens, 2048),
                    asked = std::min<std::size_t>(tokens, 64);
  SoftmaxRegression problem{Matrix(n, d), std::vector<double>(n, 0.0), std::vector<double>(n, 3.0)};
  double longest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::span<const float> key = head.keys()[i * tokens / n];
    std::ranges::copy(key, problem.a[i].begin());
    longest = std::max(longest, std::inner_product(key.begin(), key.end(), key.begin(), 0.0));
  }
  const double scale = longest > 0 ? 1 / std::sqrt(longest) : 1;
  for (std::size_t i = 0; i < n; ++i) {
    for (float& x : problem.a[i]) x = static_cast<float>(scale * x);
  }
  const GroupQueries queries = head.queries(tokens - asked, asked);
  for (std::size_t q = 0; q < asked; ++q) {
    const std::span<const float> query = queries.rows[q * source.shape().group()];
    std::vector<double> weights(n);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::span<const float> key = head.keys()[i * tokens / n];
      weights[i] = double{head.logits().scale} *
                   std::inner_product(query.begin(), query.end(), key.begin(), 0.0);
      largest = std::max(largest, weights[i]);
    }
    for (double& x : weights) sum += x = std::exp(x - largest);
    for (std::size_t i = 0; i < n; ++i) {
      problem.b[i] += weights[i] / sum / static_cast<double>(asked);
    }
  }
  constexpr std::size_t kMost = 200;
  const NewtonPath all = newton(problem, 0, 1e-8, kMost, 0);
  const NewtonPath drawn = newton(problem, 32 * d, 1e-8, kMost, 0);
  return {{"layer", source.layer_number(layer)},
          {"function", "newton"},
          {"steps", steps_of(all)},
          {"steps_drawn", steps_of(drawn)},
          {"gradient", all.gradient.back()},
          {"gradient_drawn", drawn.gradient.back()}};
}

/// One layer, a row a function.
Json measure_layer(const Submodular& o, const KvSource& source, std::size_t layer,
                   std::span<const std::size_t> kv_heads) {
  const std::size_t group = source.shape().group();
  std::vector<std::vector<std::array<Found, 3>>> found(kv_heads.size());
  parallel_for(kv_heads.size(), [&](std::size_t h) {
    const HeadAttention head(source, layer, kv_heads[h]);
    const std::size_t room = source.shape().tokens - o.ground - o.queries;
    for (std::size_t s = 0; s < o.sets; ++s) {
      found[h].push_back(measure_set(o, head, group, (s + 1) * room / o.sets));
    }
  });
  Json rows = Json::array();
  for (std::size_t f = 0; f < kFunctions.size(); ++f) {
    RunningMean greedy, h2o, holds;
    double greedy_worst = 1, h2o_worst = 1, ratio = 1;
    bool monotone = true;
    for (const auto& head : found) {
      for (const auto& set : head) {
        greedy.add(set[f].greedy);
        h2o.add(set[f].h2o);
        holds.add(set[f].diminishing.holds);
        greedy_worst = std::min(greedy_worst, set[f].greedy);
        h2o_worst = std::min(h2o_worst, set[f].h2o);
        ratio = std::min(ratio, set[f].diminishing.ratio);
        monotone = monotone && set[f].diminishing.monotone;
      }
    }
    rows.push_back({{"layer", source.layer_number(layer)},
                    {"function", kFunctions[f]},
                    {"greedy", greedy.mean()},
                    {"greedy_worst", greedy_worst},
                    {"h2o", h2o.mean()},
                    {"h2o_worst", h2o_worst},
                    {"holds", holds.mean()},
                    {"ratio", ratio},
                    {"monotone", monotone},
                    {"ground_sets", greedy.count}});
  }
  rows.push_back(measure_newton(source, layer, kv_heads[0]));
  return rows;
}

Result measure(Submodular o, Work& work) {
  require(o.ground >= 2 && o.ground <= 16, "--ground {}: 2 to 16 tokens can be searched", o.ground);
  require(o.keep >= 1 && o.keep < o.ground, "--keep {}: expected 1 to {}", o.keep, o.ground - 1);
  require(o.sets >= 1 && o.queries >= 1, "--sets and --queries must be at least 1");
  const auto source = o.source.open("eval submodular");
  require(source->shape().tokens > o.ground + o.queries, "{}: {} tokens, {} are needed",
          source->name(), source->shape().tokens, o.ground + o.queries + 1);
  const std::vector<std::size_t> layers = o.source.selected_layers(*source);
  const std::vector<std::size_t> kv_heads = o.source.selected_kv_heads(*source);
  ResultLog& log = work.log({{"experiment", "submodular"},
                             {"source", o.source.identity(*source)},
                             {"sizes", {o.ground, o.keep, o.sets, o.queries}}});
  Result result;
  result.experiment = "submodular";
  result.title = "Greedy sets, " + describe(*source, layers.size(), kv_heads.size());
  result.settings = o.source.settings(*source);
  result.settings.update(
      Json{{"ground", o.ground}, {"keep", o.keep}, {"sets", o.sets}, {"queries", o.queries}});
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const Json rows =
        log.find_or_make(fmt::format("layer {}", source->layer_number(layers[l])),
                         [&] { return measure_layer(o, *source, layers[l], kv_heads); });
    result.rows.insert(result.rows.end(), rows.begin(), rows.end());
    work.part(l, layers.size())(1);
  }
  result.columns = {{"layer", "layer"},
                    {"function", "function"},
                    {"greedy", "greedy", Unit::percent},
                    {"greedy_worst", "worst", Unit::percent},
                    {"h2o", "H2O", Unit::percent},
                    {"h2o_worst", "worst", Unit::percent},
                    {"holds", "diminishing", Unit::percent},
                    {"ratio", "ratio", Unit::number},
                    {"steps", "steps", Unit::count},
                    {"steps_drawn", "drawn", Unit::count}};
  result.named_by = {"layer", "function"};
  result.supporting = {"steps_drawn", "steps"};
  result.gap_key = "layer";
  result.notes = {
      fmt::format("{} ground sets of {} neighbouring tokens a KV head, {} of which are kept for "
                  "the {} queries behind them; all subsets are tried",
                  o.sets, o.ground, o.keep, o.queries),
      "score        log(1 + attention of the set, summed over queries): Algorithm 2 with h = log",
      "coverage     the same of each query, summed",
      "output       what the set saves of the squared error of the answers",
      "greedy, H2O  value of Algorithm 3's and of Algorithm 2's set over that of the best; a "
      "submodular function promises greedy 63.2%",
      "diminishing  of all (set, two tokens): the second adds no more once the first is there; "
      "ratio: the least of what two tokens add alone over what they add together",
      "newton       Algorithm 4, softmax regression on keys towards the attention of the last "
      "queries: steps to a gradient of 1e-8 with all rows, and with 32 drawn for each dimension"};
  if (std::ranges::any_of(result.rows, [](const Json& row) {
        return row.value("steps", Json()) == "diverged" ||
               row.value("steps_drawn", Json()) == "diverged";
      })) {
    result.notes.push_back(
        "diverged     a step overshot so far that exp(Kx) is over what float64 holds");
  }
  return result;
}

}  // namespace

Experiment submodular_experiment() {
  return experiment("submodular", "Greedy sets against the best of all sets",
                    "H2O, Section 4 and Appendix D",
                    "  ballast eval submodular qkv.safetensors --ground 12 --keep 4", &measure);
}

}  // namespace ballast
