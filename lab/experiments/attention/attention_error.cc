#include "experiments/attention/attention_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>

#include "ballast/summary.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "experiments/attention/head_attention.h"
#include "methods/adaptive.h"

namespace ballast {
namespace {

/// One method at one rate, ready to run.
struct Plan {
  std::string method;  ///< as given
  Policy policy;
  double rate = 1;
  std::size_t kept = 0;        ///< of the middle
  std::vector<Budget> budget;  ///< by layer as selected
  bool keeps_all = false;
};

/// What one run on one KV head gives.
struct Outcome {
  double entries = 0;
  double bytes = 0;
  double seconds = 0;
  std::vector<double> errors;  ///< by query head of the group
  std::string report;
};

Json to_json(const std::vector<Outcome>& outcomes) {
  Json out = Json::array();
  for (const Outcome& o : outcomes) {
    out.push_back({o.entries, o.bytes, o.seconds, o.errors, o.report});
  }
  return out;
}

std::vector<Outcome> outcomes_from_json(const Json& json) {
  std::vector<Outcome> out;
  for (const Json& one : json) {
    Outcome& o = out.emplace_back();
    one.at(0).get_to(o.entries);
    one.at(1).get_to(o.bytes);
    one.at(2).get_to(o.seconds);
    for (const Json& error : one.at(3)) o.errors.push_back(number_of(error));
    one.at(4).get_to(o.report);
  }
  return out;
}

Policy plain_policy(const Policy& method) {
  for (std::string_view key : {"rate", "budget", "bytes", "type", "sink"}) {
    require(!method.has(key),
            "method {}: the experiment sets memory, storage and sink; leave out {}=",
            method.info().name, key);
  }
  require(summarises_heads_alone(method),
          "method {}: here heads are summarised one by one, with attention sums alone; use ballast "
          "compress{}",
          method.info().name, has_adaptive_heads(method) ? " or heads=uniform" : "");
  return method;
}

std::vector<std::size_t> selected(std::vector<std::size_t> wanted, std::size_t count,
                                  const char* what, const std::string& name) {
  if (wanted.empty()) {
    wanted.resize(count);
    std::iota(wanted.begin(), wanted.end(), std::size_t{0});
  }
  std::ranges::sort(wanted);
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  require(wanted.back() < count, "{}: there is no {} {}; there are {}, counted from 0", name, what,
          wanted.back(), count);
  return wanted;
}

/// What the last tokens' queries gave each token of the prompt.
struct RecentAttention : Observed {
  std::span<const float> attention(Position first, std::size_t count) const override {
    return sums.subspan(static_cast<std::size_t>(first), count);
  }
  std::span<const float> sums;
};

class Measurement {
 public:
  Measurement(const KvSource& source, const AttentionErrorOptions& options, const Advance& advance,
              ResultLog* log)
      : source_(source), options_(options), advance_(advance), log_(log) {
    check();
    const std::size_t n = source.shape().tokens;
    prompt_ = n - options.window;
    result_.shape = source.shape();
    result_.layers = selected(options.layers, source.shape().layers, "layer", source.name());
    result_.kv_heads =
        selected(options.kv_heads, source.shape().kv_heads, "KV head", source.name());
    result_.middle = prompt_ - options.sink;
    result_.exact_bytes =
        static_cast<double>(n * (stored_row_bytes(StorageType::f32, source.shape().key_dim) +
                                 stored_row_bytes(StorageType::f32, source.shape().value_dim)));
    make_plans();
  }

  AttentionErrors run() {
    outcomes_.resize(plans_.size());
    for (auto& of_plan : outcomes_) of_plan.resize(options_.seeds);
    make_shared_states();
    for (std::size_t l = 0; l < result_.layers.size(); ++l) {
      const std::vector<Outcome> made = find_layer(l);
      const std::size_t heads = result_.kv_heads.size(), per_plan = options_.seeds * heads;
      for (std::size_t i = 0; i < made.size(); ++i) {
        outcomes_[i / per_plan][i % per_plan / heads].push_back(made[i]);
      }
    }
    for (std::size_t p = 0; p < plans_.size(); ++p) result_.cells.push_back(sum_up(p));
    return std::move(result_);
  }

 private:
  /// The work on one KV head of a layer.
  struct Work {
    std::unique_ptr<HeadAttention> attention;
    Rows keys, values;  ///< as stored
    GroupQueries queries;
    Matrix exact;
    std::map<std::size_t, std::vector<float>>
        attention_sums;  ///< by the first token that is watched
  };

  void check() const;
  void make_plans();
  void make_shared_states();
  /// Outcomes by plan, seed and KV head, from the log or computed.
  std::vector<Outcome> find_layer(std::size_t l);
  std::vector<Outcome> run_layer(std::size_t l);
  void prepare(Work& work, std::size_t layer, std::size_t kv_head, bool selected) const;
  Outcome run_head(const Plan& plan, std::size_t l, const Work& work,
                   const std::map<std::size_t, std::vector<float>>& layer_attention_sums,
                   std::uint64_t seed, SharedState* shared) const;
  /// The first token whose query counts, for each attention sum that the method needs.
  std::vector<std::size_t> watched_from(const Policy& policy) const;
  std::size_t first_recent(const Policy& policy) const {
    return prompt_ - std::min(prompt_, policy.observed());
  }
  void step(double amount);
  AttentionErrorCell sum_up(std::size_t p) const;

  const KvSource& source_;
  const AttentionErrorOptions& options_;
  const Advance& advance_;
  ResultLog* log_;
  std::size_t prompt_ = 0;  ///< tokens before the exact ones at the end
  AttentionErrors result_;
  std::vector<Plan> plans_;
  /// By plan and seed; heads in order of layer, then KV head.
  std::vector<std::vector<std::vector<Outcome>>> outcomes_;
  std::vector<std::vector<std::unique_ptr<SharedState>>> shared_;
  std::mutex mutex_;
  double done_ = 0;
};

void Measurement::check() const {
  const auto& o = options_;
  const std::size_t n = source_.shape().tokens;
  require(!o.policies.empty(), "--methods: no method given");
  require(o.seeds > 0, "--seeds must be at least 1");
  require(o.queries >= 1 && o.queries <= o.window,
          "{} queries: expected 1 to {}, the size of the window", o.queries, o.window);
  require(o.sink + o.window < n,
          "{}: {} tokens leave no middle between a sink of {} and a window of {}; reduce --sink or "
          "--window",
          source_.name(), n, o.sink, o.window);
  for (double rate : o.rates) {
    require(rate > 0 && rate <= 1, "--rates {}: a rate must be above 0 and at most 1", rate);
  }
}

void Measurement::make_plans() {
  const int layers = static_cast<int>(result_.layers.size());
  for (const Policy& method : options_.policies) {
    plain_policy(method);
    const bool all = method.info().window_policy == WindowPolicy::all;
    require(all || !options_.rates.empty(), "--rates: no rate given");
    for (std::size_t r = 0; r < (all ? 1 : options_.rates.size()); ++r) {
      Plan plan;
      plan.method = method.to_string();
      plan.keeps_all = all;
      plan.rate = all ? 1 : options_.rates[r];
      plan.kept = static_cast<std::size_t>(
          std::max(1LL, std::llround(plan.rate * static_cast<double>(result_.middle))));
      plan.policy = all ? method : policy_for(method, options_.sink, plan.kept);
      for (int l = 0; l < layers; ++l) {
        plan.budget.push_back(plan.policy.budget(prompt_, Protocol::prefill, l, layers));
      }
      plans_.push_back(std::move(plan));
    }
  }
}

void Measurement::make_shared_states() {
  for (const Plan& plan : plans_) {
    auto& states = shared_.emplace_back(options_.seeds);
    if (plan.policy.info().make_shared == nullptr) continue;
    for (auto& state : states) state = plan.policy.info().make_shared(plan.policy);
  }
}

std::vector<std::size_t> Measurement::watched_from(const Policy& policy) const {
  std::vector<std::size_t> from;
  if (policy.needs().attention_sums) from.push_back(0);
  if (policy.needs().recent_queries) from.push_back(first_recent(policy));
  return from;
}

void Measurement::step(double amount) {
  if (!advance_) return;
  std::lock_guard lock(mutex_);
  advance_(done_ += amount / static_cast<double>(result_.layers.size()));
}

void Measurement::prepare(Work& work, std::size_t layer, std::size_t kv_head, bool selected) const {
  const KvShape& s = source_.shape();
  work.attention = std::make_unique<HeadAttention>(source_, layer, kv_head, options_.scale);
  for (const Plan& plan : plans_) {
    if (!selected && !plan.policy.needs().whole_layer) continue;
    for (std::size_t from : watched_from(plan.policy)) {
      if (!work.attention_sums.contains(from))
        work.attention_sums[from] = work.attention->attention_sum(from, prompt_);
    }
  }
  if (!selected) return;
  // Reading every query of a file rejects NaN and infinity, even if no method needs queries.
  constexpr std::size_t kRun = 256;
  for (std::size_t t = 0; t < s.tokens && !source_.made_up(); t += kRun) {
    work.attention->queries(t, std::min(kRun, s.tokens - t));
  }
  work.queries = work.attention->queries(s.tokens - options_.queries, options_.queries);
  work.exact = work.attention->exact(work.queries, s.tokens);
  work.keys = Rows(options_.key_type, s.key_dim, s.tokens);
  work.values = Rows(options_.value_type, s.value_dim, s.tokens);
  work.keys.set_mean(work.attention->key_mean());
  work.values.set_mean(work.attention->value_mean());
  for (std::size_t t = 0; t < s.tokens; ++t) {
    work.keys.set(t, work.attention->keys()[t], static_cast<Position>(t));
    work.values.set(t, work.attention->values()[t]);
  }
}

std::vector<Outcome> Measurement::find_layer(std::size_t l) {
  // The log does not record state shared between layers; methods with such state run every layer.
  const bool apart = std::ranges::all_of(shared_, [](const auto& of_plan) {
    return std::ranges::all_of(of_plan, [](const auto& state) { return state == nullptr; });
  });
  if (log_ == nullptr || !apart) return run_layer(l);
  const std::string key = fmt::format("layer {}", source_.layer_number(result_.layers[l]));
  if (const Json* found = log_->find(key)) {
    step(1);
    return outcomes_from_json(*found);
  }
  std::vector<Outcome> made = run_layer(l);
  log_->add(key, to_json(made));
  return made;
}

std::vector<Outcome> Measurement::run_layer(std::size_t l) {
  const std::size_t layer = result_.layers[l];
  // Methods that decide for all heads together need the attention of every head.
  const bool whole =
      std::ranges::any_of(plans_, [](const Plan& plan) { return plan.policy.needs().whole_layer; });
  std::vector<std::size_t> heads = result_.kv_heads;
  if (whole) heads = selected({}, source_.shape().kv_heads, "KV head", source_.name());
  auto is_selected = [&](std::size_t head) {
    return std::ranges::binary_search(result_.kv_heads, head);
  };
  std::vector<Work> works(heads.size());
  constexpr double kPrepare = 0.2;  // the estimated fraction of the time
  parallel_for(heads.size(), [&](std::size_t i) {
    prepare(works[i], layer, heads[i], is_selected(heads[i]));
    step(kPrepare / static_cast<double>(heads.size()));
  });
  std::map<std::size_t, std::vector<float>> layer_attention_sums;
  if (whole) {
    for (const Work& work : works) {
      for (const auto& [from, attention_sum] : work.attention_sums) {
        auto& sum =
            layer_attention_sums.try_emplace(from, attention_sum.size(), 0.0f).first->second;
        for (std::size_t i = 0; i < attention_sum.size(); ++i) sum[i] += attention_sum[i];
      }
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (is_selected(heads[i])) std::swap(works[kept++], works[i]);
    }
    works.resize(kept);
  }
  const std::size_t per_plan = options_.seeds * works.size();
  std::vector<Outcome> made(plans_.size() * per_plan);
  parallel_for(made.size(), [&](std::size_t i) {
    const std::size_t p = i / per_plan, seed = i % per_plan / works.size(), h = i % works.size();
    made[i] = run_head(plans_[p], l, works[h], layer_attention_sums, options_.first_seed + seed,
                       shared_[p][seed].get());
    step((1 - kPrepare) / static_cast<double>(made.size()));
  });
  return made;
}

Outcome Measurement::run_head(const Plan& plan, std::size_t l, const Work& work,
                              const std::map<std::size_t, std::vector<float>>& layer_attention_sums,
                              std::uint64_t seed, SharedState* shared) const {
  const KvShape& s = source_.shape();
  const Budget& budget = plan.budget[l];
  // A prompt within the budget is not compressed, as in a cache.
  const bool whole = plan.keeps_all || budget.total() >= prompt_;
  const std::size_t first = whole ? 0 : budget.sink;
  const std::size_t near = whole ? prompt_ : std::min(budget.window, prompt_ - first);
  const std::size_t middle = prompt_ - first - near;
  const RowsView keys = work.keys.view(0, s.tokens, Position{0}),
                 values = work.values.view(0, s.tokens);
  SummarySetup setup = work.attention->setup({.policy = plan.policy,
                                              .sink = first,
                                              .tokens = middle,
                                              .capacity = budget.summary,
                                              .key_type = options_.key_type,
                                              .value_type = options_.value_type,
                                              .seed = seed});
  setup.layers = static_cast<int>(result_.layers.size());
  setup.shared = shared;

  Outcome out;
  const Stopwatch watch;
  std::unique_ptr<Summary> summary = whole ? nullptr : make_summary(setup);
  if (summary && middle > 0) {
    const Segment rows = exact_segment(keys, values, first, middle);
    Block block;
    block.keys = rows.keys;
    block.values = rows.values;
    block.first = rows.first_position;
    block.now = static_cast<Position>(prompt_);
    const auto& attention_sums =
        plan.policy.needs().whole_layer ? layer_attention_sums : work.attention_sums;
    if (plan.policy.needs().attention_sums) {
      block.attention_sum = std::span(attention_sums.at(0)).subspan(first, middle);
    }
    RecentAttention recent;
    if (plan.policy.needs().recent_queries) {
      recent.sums = attention_sums.at(first_recent(plan.policy));
      block.observed = &recent;
    }
    summary->absorb(block);
  }
  out.seconds = watch.seconds();

  std::vector<Segment> segments = {exact_segment(keys, values, 0, first)};
  if (summary) summary->segments(segments);
  segments.push_back(exact_segment(keys, values, prompt_ - near, near + options_.window));
  Matrix estimate(work.exact.rows(), s.value_dim);
  attend(work.queries.view(), segments, work.attention->logits(), estimate.view());
  out.errors = relative_errors(estimate, work.exact, s.group());

  const std::size_t exact_entries = first + near + options_.window;
  const std::size_t summarised = summary ? summary->entries() : 0;
  out.entries = static_cast<double>(summarised + first + near) - static_cast<double>(options_.sink);
  out.bytes =
      static_cast<double>(exact_entries * (stored_row_bytes(options_.key_type, s.key_dim) +
                                           stored_row_bytes(options_.value_type, s.value_dim)) +
                          (summary ? summary->bytes() : 0));
  if (summary) out.report = summary->report();
  return out;
}

/// The mean. Of equal values it is exactly that value, so that their deviation is 0.
double mean(const std::vector<double>& xs) {
  double sum = 0;
  for (double x : xs) sum += x - xs[0];
  return xs[0] + sum / static_cast<double>(xs.size());
}

/// The sample standard deviation; 0 for one value.
double deviation(const std::vector<double>& xs) {
  if (xs.size() < 2) return 0;
  const double middle = mean(xs);
  double sum = 0;
  for (double x : xs) sum += (x - middle) * (x - middle);
  return std::sqrt(sum / static_cast<double>(xs.size() - 1));
}

AttentionErrorCell Measurement::sum_up(std::size_t p) const {
  const Plan& plan = plans_[p];
  AttentionErrorCell cell;
  cell.method = plan.method;
  cell.rate = plan.rate;
  const auto& by_seed = outcomes_[p];
  const std::size_t group = source_.shape().group();
  const std::size_t runs = by_seed[0].size(), heads = runs * group;
  std::vector<double> of_seed(by_seed.size(), 0.0), of_head(heads, 0.0);
  for (std::size_t seed = 0; seed < by_seed.size(); ++seed) {
    for (std::size_t i = 0; i < runs; ++i) {
      const Outcome& outcome = by_seed[seed][i];
      const double weight = 1.0 / static_cast<double>(runs * by_seed.size());
      cell.entries += weight * outcome.entries;
      cell.bytes += weight * outcome.bytes;
      cell.seconds += weight * outcome.seconds;
      for (std::size_t g = 0; g < group; ++g) {
        const double error = outcome.errors[g];
        of_seed[seed] += error / static_cast<double>(heads);
        of_head[i * group + g] += error / static_cast<double>(by_seed.size());
        cell.worst = std::max(cell.worst, error);
      }
      if (!outcome.report.empty() &&
          std::ranges::find(cell.reports, outcome.report) == cell.reports.end()) {
        cell.reports.push_back(outcome.report);
      }
    }
  }
  cell.error = mean(of_seed);
  cell.seed_deviation = deviation(of_seed);
  cell.head_deviation = deviation(of_head);
  const std::size_t per_layer = heads / result_.layers.size();
  for (std::size_t l = 0; l < result_.layers.size(); ++l) {
    const auto at = of_head.begin() + static_cast<std::ptrdiff_t>(l * per_layer);
    cell.layer_errors.push_back(
        mean(std::vector<double>(at, at + static_cast<std::ptrdiff_t>(per_layer))));
  }
  return cell;
}

}  // namespace

bool summarises_heads_alone(const Policy& policy) {
  const Needs stats = policy.needs();
  return stats.recent_score == nullptr && !stats.fits_values && !stats.query_moments &&
         !has_adaptive_heads(policy);
}

Policy policy_for(const Policy& method, std::size_t sink, std::size_t kept) {
  plain_policy(method);
  Policy policy =
      method.with("sink", std::to_string(sink)).with("budget", std::to_string(sink + kept));
  // The exact tokens at the end are every method's window. What a method keeps near them by itself
  // is left to those that divide their budget so, and to those whose queries those tokens are.
  const MethodInfo& info = method.info();
  if (info.window_policy == WindowPolicy::fixed && !method.has("window")) {
    const bool watches_last = method.observed() > 0;
    policy =
        policy.with("window", watches_last ? std::to_string(std::min(info.window, kept)) : "0");
  }
  return policy;
}

AttentionErrors measure_attention_errors(const KvSource& source,
                                         const AttentionErrorOptions& options,
                                         const Advance& advance, ResultLog* log) {
  return Measurement(source, options, advance, log).run();
}

void describe_ends(Parameters& p, AttentionErrorOptions& o) {
  p.add("--rates", o.rates, "Fractions of the middle that are kept");
  p.add("--seeds", o.seeds, "Runs of each method, with seeds counted up from --seed");
  p.add("--sink", o.sink, "First tokens kept exactly");
  p.add("--window", o.window, "Last tokens kept exactly");
  p.add("--queries", o.queries, "Last queries that are answered, up to --window");
}

}  // namespace ballast
