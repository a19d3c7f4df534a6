// ballast eval memory: error against memory on long streams.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/eval/experiment.h"
#include "eval/single_layer/memory_error.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  SynthOptions synth;
  std::vector<std::string> methods = {"balancekv;uniform"};
  MemoryErrorOptions experiment;
  ResultOutput output;
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

Plot make_plot(const std::vector<MemoryErrorRow>& rows, const Options& o) {
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

Result make_result(const Options& o, const std::vector<MemoryErrorRow>& rows) {
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

void run(Options& o) {
  for (const std::string& method : split_methods(o.methods)) {
    o.experiment.policies.push_back(Policy::parse(method));
  }
  o.experiment.first_seed = o.synth.seed;
  o.synth.heads = o.synth.kv_heads;
  o.synth.layers = 1;
  o.synth.needle = -1;
  o.synth.tokens = needed_tokens(o.experiment);
  const Synth source(o.synth);
  o.output.open();
  const SynthOptions& synth = o.synth;
  const MemoryErrorOptions& e = o.experiment;
  Json methods = Json::array();
  for (const Policy& policy : e.policies) methods.push_back(policy.to_string());
  ResultLog log = o.output.log({{"experiment", "memory"},
                                {"methods", methods},
                                {"lengths", e.lengths},
                                {"budgets", e.budgets},
                                {"seeds", {e.seeds, e.first_seed}},
                                {"ends", {e.sink, e.queries}},
                                {"shape", {synth.kv_heads, synth.dim, synth.clusters}},
                                {"norms", {synth.query_norm, synth.key_norm}}});
  std::vector<MemoryErrorRow> rows;
  {
    Progress progress("eval memory");
    const auto advance = [&](double done) {
      if (!o.output.quiet()) progress.update(done);
    };
    rows = measure_memory_errors(source, e, advance, &log);
  }
  o.output.write(make_result(o, rows), log);
}

}  // namespace

void add_eval_memory(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  MemoryErrorOptions& e = o.experiment;
  o.synth.kv_heads = 1;
  CLI::App* app = parent.add_subcommand(
      "memory", "Error against memory on long made-up streams, and its slope");
  app->add_option("--methods", o.methods,
                  "Method strings, separated by ',' or ';' or given repeatedly")
      ->allow_extra_args(false)
      ->default_str("balancekv;uniform")
      ->type_name("LIST");
  app->add_option("--lengths", e.lengths, "Tokens of the streams")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("4096,16384,65536,262144")
      ->type_name("LIST");
  app->add_option("--budgets", e.budgets, "Entries that the summary may hold")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("256,512,1024,2048,4096")
      ->type_name("LIST");
  app->add_option("--seeds", e.seeds, "Runs of each method, with seeds counted up from --seed")
      ->capture_default_str();
  app->add_option("--seed", o.synth.seed, "First seed, and that of the stream")
      ->capture_default_str();
  app->add_option("--queries", e.queries, "Queries asked after the stream")->capture_default_str();
  app->add_option("--sink", e.sink, "First tokens kept exactly")->capture_default_str();
  app->add_option("--kv-heads", o.synth.kv_heads, "KV heads")->capture_default_str();
  app->add_option("--dim", o.synth.dim, "Head dimension, up to 256")->capture_default_str();
  app->add_option("--clusters", o.synth.clusters, "Clusters of keys")->capture_default_str();
  app->add_option("--query-norm", o.synth.query_norm, "Mean length of queries")
      ->capture_default_str();
  app->add_option("--key-norm", o.synth.key_norm, "Mean length of keys less their mean")
      ->capture_default_str();
  o.output.add_to(*app);
  app->footer(
      "Example:\n  ballast eval memory --methods 'balancekv;uniform' --lengths 4096,65536 "
      "--plot memory.svg");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
