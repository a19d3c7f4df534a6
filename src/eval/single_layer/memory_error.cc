#include "eval/single_layer/memory_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "ballast/summary.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "eval/single_layer/head_attention.h"

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
    require(policy.attention_stats().kind == AttentionStats::Kind::nothing,
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

}  // namespace ballast
