#include "experiments/attention/memory_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "ballast/summary.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "experiments/attention/head_attention.h"
#include "experiments/data/synth.h"
#include "experiments/experiment.h"
#include "report/units.h"

namespace ballast {
namespace {

/// Tokens absorbed at a time, as a window of a stream evicts them.
constexpr std::size_t kStep = 128;

struct Run {
  double error = 0, entries = 0, bytes = 0, seconds = 0;
};

/// Summarizes the stream and compares the attention over the summary with the exact one.
Run run_once(const HeadAttention& head, const SummarySetup& setup, std::size_t tokens,
             const Queries& queries, const Matrix& exact) {
  const auto summary = make_summary(setup);
  const RowsView keys = view_f32(head.keys().view()), values = view_f32(head.values().view());
  const Stopwatch watch;
  for (std::size_t t = setup.sink; t < tokens; t += kStep) {
    Block block;
    const std::size_t count = std::min(kStep, tokens - t);
    block.keys = keys.slice(t, count);
    block.values = values.slice(t, count);
    block.first = static_cast<Position>(t);
    block.now = static_cast<Position>(t + count);
    summary->absorb(block);
  }
  const double took = watch.seconds();
  std::vector<Segment> segments = {exact_segment(keys, values, 0, setup.sink)};
  summary->segments(segments);
  Matrix estimate(exact.rows(), exact.cols());
  attend(queries, segments, setup.logits, estimate.view());
  Run run;
  run.error = relative_errors(estimate, exact, 1)[0];
  run.entries = static_cast<double>(summary->entries());
  run.bytes = static_cast<double>(summary->bytes());
  run.seconds = took / static_cast<double>(tokens);
  return run;
}

void check(const KvSource& source, const MemoryErrorOptions& o) {
  require(!o.policies.empty() && !o.lengths.empty() && !o.budgets.empty() && o.seeds > 0 &&
              o.queries > 0,
          "eval memory: needs methods, lengths, budgets, seeds and queries");
  for (const Policy& policy : o.policies) {
    const MethodInfo& info = policy.info();
    require(info.make != nullptr, "eval memory: {} makes no summary", info.name);
    require(!policy.needs().attention_sums && !policy.needs().recent_queries,
            "eval memory: {} watches attention; compare it with `ballast eval attention`",
            info.name);
    for (const char* key : {"rate", "budget", "bytes", "type", "sink", "window"}) {
      require(!policy.has(key), "eval memory: {} sets {}, which the experiment decides",
              policy.to_string(), key);
    }
  }
  for (std::size_t n : o.lengths) {
    require(n > o.sink, "eval memory: a stream of {} tokens does not exceed the sink of {}", n,
            o.sink);
  }
  require(needed_tokens(o) <= source.shape().tokens,
          "{}: {} tokens; the longest stream and its queries take {}", source.name(),
          source.shape().tokens, needed_tokens(o));
}

}  // namespace

std::size_t needed_tokens(const MemoryErrorOptions& options) {
  std::size_t longest = 0;
  for (std::size_t n : options.lengths) longest = std::max(longest, n);
  return longest + options.queries;
}

double log_slope(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() < 2) return 0;
  double mx = 0, my = 0, sxy = 0, sxx = 0;
  const auto n = static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    mx += std::log(x[i]) / n;
    my += std::log(y[i]) / n;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    sxy += (std::log(x[i]) - mx) * (std::log(y[i]) - my);
    sxx += (std::log(x[i]) - mx) * (std::log(x[i]) - mx);
  }
  return sxx > 0 ? sxy / sxx : 0;
}

std::vector<MemoryErrorRow> measure_memory_errors(const KvSource& source,
                                                  const MemoryErrorOptions& o,
                                                  const Advance& advance, ResultLog* log) {
  check(source, o);
  ResultLog nothing;
  ResultLog& findings = log != nullptr ? *log : nothing;
  const KvShape& shape = source.shape();
  std::vector<MemoryErrorRow> rows;
  for (const Policy& policy : o.policies) {
    for (std::size_t n : o.lengths) {
      MemoryErrorRow row;
      row.method = policy.to_string();
      row.tokens = n;
      for (std::size_t b : o.budgets) {
        if (b + o.sink < n) row.budgets.push_back(b);
      }
      rows.push_back(std::move(row));
    }
  }
  // results[row][budget][seed], summed over heads in order.
  std::vector<std::vector<std::vector<Run>>> results(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    results[r].assign(rows[r].budgets.size(), std::vector<Run>(o.seeds));
  }
  const auto heads = static_cast<double>(shape.kv_heads);
  std::atomic<std::size_t> done = 0;
  const double all = heads * static_cast<double>(rows.size() * o.seeds);
  for (std::size_t h = 0; h < shape.kv_heads; ++h) {
    const HeadAttention head(source, 0, h);
    for (std::size_t i = 0; i < o.lengths.size(); ++i) {
      const std::size_t n = o.lengths[i];
      const GroupQueries queries = head.queries(n, o.queries);
      const Queries asked{queries.rows.view(), {}, {}};
      Segment everything;
      everything.keys = view_f32(head.keys().view()).slice(0, n);
      everything.values = view_f32(head.values().view()).slice(0, n);
      Matrix exact(queries.rows.rows(), shape.value_dim);
      attend(asked, {&everything, 1}, head.logits(), exact.view());
      parallel_for(o.policies.size() * o.seeds, [&](std::size_t job) {
        const std::size_t p = job / o.seeds, s = job % o.seeds;
        const std::size_t r = p * o.lengths.size() + i;
        const std::string key =
            fmt::format("head {}, {} tokens, {}, seed {}", h, n, rows[r].method, s);
        const Json found = findings.find_or_make(key, [&] {
          Json runs = Json::array();
          for (std::size_t budget : rows[r].budgets) {
            const SummarySetup setup = head.setup({.policy = o.policies[p],
                                                   .protocol = Protocol::stream,
                                                   .sink = o.sink,
                                                   .tokens = n - o.sink,
                                                   .capacity = budget,
                                                   .seed = o.first_seed + s});
            const Run run = run_once(head, setup, n, asked, exact);
            runs.push_back({run.error, run.entries, run.bytes, run.seconds});
          }
          return runs;
        });
        for (std::size_t b = 0; b < rows[r].budgets.size(); ++b) {
          Run& sum = results[r][b][s];
          sum.error += number_of(found.at(b).at(0)) / heads;
          sum.entries += number_of(found.at(b).at(1)) / heads;
          sum.bytes += number_of(found.at(b).at(2)) / heads;
          sum.seconds += number_of(found.at(b).at(3)) / heads;
        }
        if (advance) advance(static_cast<double>(++done) / all);
      });
    }
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    MemoryErrorRow& row = rows[r];
    for (const std::vector<Run>& runs : results[r]) {
      Run mean;
      double squares = 0;
      const auto n = static_cast<double>(runs.size());
      for (const Run& run : runs) {
        mean.error += run.error / n;
        mean.entries += run.entries / n;
        mean.bytes += run.bytes / n;
        mean.seconds += run.seconds / n;
      }
      for (const Run& run : runs) squares += (run.error - mean.error) * (run.error - mean.error);
      row.errors.push_back(mean.error);
      row.entries.push_back(mean.entries);
      row.bytes.push_back(mean.bytes);
      row.seconds.push_back(mean.seconds);
      row.deviations.push_back(runs.size() > 1 ? std::sqrt(squares / (n - 1)) : 0);
    }
    row.slope = log_slope({row.budgets.begin(), row.budgets.end()}, row.errors);
  }
  return rows;
}

namespace {

struct MemoryErrors {
  SynthOptions synth;
  std::vector<std::string> methods = {"balancekv;uniform"};
  MemoryErrorOptions experiment;

  void describe(Parameters& p) {
    MemoryErrorOptions& e = experiment;
    synth.kv_heads = 1;
    p.add("--methods", methods, "Method strings, separated by ',' or ';' or given repeatedly");
    p.add("--lengths", e.lengths, "Tokens of the streams");
    p.add("--budgets", e.budgets, "Entries that the summary may hold");
    p.add("--seeds", e.seeds, "Runs of each method, with seeds counted up from --seed");
    p.add("--seed", synth.seed, "First seed, and that of the stream");
    p.add("--queries", e.queries, "Queries asked after the stream");
    p.add("--sink", e.sink, "First tokens kept exactly");
    p.add("--kv-heads", synth.kv_heads, "KV heads");
    p.add("--dim", synth.dim, "Head dimension, up to 256");
    p.add("--clusters", synth.clusters, "Clusters of keys");
    p.add("--query-norm", synth.query_norm, "Mean length of queries");
    p.add("--key-norm", synth.key_norm, "Mean length of keys less their mean");
  }
};

/// The lists are by budget; error_at_N repeats an error for the table.
Json row_of(const MemoryErrorRow& row, const MemoryErrorOptions& e) {
  Json out = {{"method", row.method},
              {"tokens", row.tokens},
              {"budgets", row.budgets},
              {"entries", row.entries},
              {"summary_bytes", row.bytes},
              {"error", row.errors},
              {"error_sd_seeds", row.deviations},
              {"seconds_per_token", row.seconds},
              {"slope", row.budgets.size() < 2 ? Json() : Json(row.slope)}};
  std::size_t b = 0;
  for (std::size_t budget : e.budgets) {
    const bool has = b < row.budgets.size() && row.budgets[b] == budget;
    out[fmt::format("error_at_{}", budget)] = has ? Json(row.errors[b]) : Json("exact");
    b += has;
  }
  out["largest_seconds_per_token"] = row.seconds.empty() ? Json() : Json(row.seconds.back());
  return out;
}

Plot make_plot(const std::vector<MemoryErrorRow>& rows, const MemoryErrors& o) {
  std::size_t longest = 0;
  for (const MemoryErrorRow& row : rows) longest = std::max(longest, row.tokens);
  Plot plot;
  plot.title = fmt::format("Error against memory: {} tokens, dimension {}", format_count(longest),
                           o.synth.dim);
  plot.x_title = "entries of the summary";
  plot.y_title = "relative error";
  plot.log_x = plot.log_y = true;
  for (const MemoryErrorRow& row : rows) {
    if (row.tokens != longest) continue;
    Plot::Line line{fmt::format("{} (slope {:.2f})", row.method, row.slope), {}};
    for (std::size_t b = 0; b < row.budgets.size(); ++b) {
      line.points.push_back(
          {static_cast<double>(row.budgets[b]), row.errors[b], row.deviations[b]});
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

Result make_result(const MemoryErrors& o, const std::vector<MemoryErrorRow>& rows) {
  const MemoryErrorOptions& e = o.experiment;
  Result out;
  out.experiment = "memory";
  out.title =
      fmt::format("Error against memory, synthetic stream: {} head{} of dimension {}; {} seed{}",
                  o.synth.kv_heads, o.synth.kv_heads == 1 ? "" : "s", o.synth.dim, e.seeds,
                  e.seeds == 1 ? "" : "s");
  out.settings = {{"kv_heads", o.synth.kv_heads}, {"dim", o.synth.dim},
                  {"clusters", o.synth.clusters}, {"sink", e.sink},
                  {"queries", e.queries},         {"seeds", e.seeds},
                  {"first_seed", e.first_seed}};
  out.columns = {{"method", "method"}, {"tokens", "tokens", Unit::count}};
  for (std::size_t budget : e.budgets) {
    out.columns.push_back({fmt::format("error_at_{}", budget), format_count(budget), Unit::number});
  }
  out.columns.push_back({"slope", "slope", Unit::number});
  out.columns.push_back({"largest_seconds_per_token", "time/token", Unit::seconds});
  out.named_by = {"method", "tokens"};
  out.supporting = {"largest_seconds_per_token"};
  out.gap_key = "method";
  for (const MemoryErrorRow& row : rows) out.rows.push_back(row_of(row, e));
  out.plots = {make_plot(rows, o)};
  out.notes = {
      fmt::format("columns    relative error (Frobenius) of {} queries asked after the stream, by "
                  "the entries that the summary may hold",
                  e.queries),
      "slope      of ln(error) against ln(entries): -1/2 for independent samples, -1 is what "
      "BalanceKV's theorem promises",
      "time       to take in one token, at the largest budget"};
  return out;
}

Result measure(MemoryErrors o, Work& work) {
  for (const std::string& method : split_methods(o.methods)) {
    o.experiment.policies.push_back(Policy::parse(method));
  }
  o.experiment.first_seed = o.synth.seed;
  o.synth.heads = o.synth.kv_heads;
  o.synth.layers = 1;
  o.synth.needle = -1;
  o.synth.tokens = needed_tokens(o.experiment);
  const Synth source(o.synth);
  const SynthOptions& synth = o.synth;
  const MemoryErrorOptions& e = o.experiment;
  Json methods = Json::array();
  for (const Policy& policy : e.policies) methods.push_back(policy.to_string());
  ResultLog& log = work.log({{"experiment", "memory"},
                             {"methods", methods},
                             {"lengths", e.lengths},
                             {"budgets", e.budgets},
                             {"seeds", {e.seeds, e.first_seed}},
                             {"ends", {e.sink, e.queries}},
                             {"shape", {synth.kv_heads, synth.dim, synth.clusters}},
                             {"norms", {synth.query_norm, synth.key_norm}}});
  return make_result(o, measure_memory_errors(source, e, work.part(0, 1), &log));
}

}  // namespace

Experiment memory_experiment() {
  return experiment("memory", "Error against memory on long made-up streams, and its slope",
                    "BalanceKV, Theorem 3.1",
                    "  ballast eval memory --methods 'balancekv;uniform' --lengths 4096,65536 "
                    "--plot memory.svg",
                    &measure);
}

}  // namespace ballast
