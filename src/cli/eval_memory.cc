// ballast eval memory: error against memory on long streams.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/fail.h"
#include "cli/command.h"
#include "eval/memory_error.h"
#include "report/plot.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  SynthOptions synth;
  std::vector<std::string> methods = {"balancekv;uniform"};
  MemoryErrorOptions experiment;
  std::string plot;
  JsonOption json;
};

Json to_json(const Options& o, const std::vector<MemoryErrorRow>& rows) {
  Json results = Json::array();
  for (const MemoryErrorRow& row : rows) {
    results.push_back({{"method", row.method},
                       {"tokens", row.tokens},
                       {"budgets", row.budgets},
                       {"entries", row.entries},
                       {"summary_bytes", row.bytes},
                       {"error", row.errors},
                       {"error_sd_seeds", row.deviations},
                       {"seconds_per_token", row.seconds},
                       {"slope", row.slope}});
  }
  return {{"experiment", "memory"},       {"kv_heads", o.synth.kv_heads},
          {"dim", o.synth.dim},           {"clusters", o.synth.clusters},
          {"sink", o.experiment.sink},    {"queries", o.experiment.queries},
          {"seeds", o.experiment.seeds},  {"first_seed", o.experiment.first_seed},
          {"results", std::move(results)}};
}

void print_table(const Options& o, const std::vector<MemoryErrorRow>& rows) {
  print(fmt::format("synthetic stream: {} head{} of dimension {}; {} seed{}\n\n", o.synth.kv_heads,
                    o.synth.kv_heads == 1 ? "" : "s", o.synth.dim, o.experiment.seeds,
                    o.experiment.seeds == 1 ? "" : "s"));
  std::vector<Table::Column> columns = {{"method"}, {"tokens", Align::right}};
  for (std::size_t budget : o.experiment.budgets) {
    columns.push_back({format_count(budget), Align::right});
  }
  columns.push_back({"slope", Align::right});
  columns.push_back({"time/token", Align::right});
  Table table(columns);
  std::string before;
  for (const MemoryErrorRow& row : rows) {
    if (!before.empty() && before != row.method) table.add_gap();
    before = row.method;
    std::vector<std::string> cells = {row.method, format_count(row.tokens)};
    std::size_t b = 0;
    for (std::size_t budget : o.experiment.budgets) {
      const bool has = b < row.budgets.size() && row.budgets[b] == budget;
      cells.push_back(has ? format_number(row.errors[b]) : "exact");
      b += has;
    }
    cells.push_back(row.budgets.size() < 2 ? "" : fmt::format("{:.2f}", row.slope));
    cells.push_back(row.seconds.empty() ? "" : format_seconds(row.seconds.back()));
    table.add(cells);
  }
  print(table.to_string());
  print(fmt::format(
      "\ncolumns    relative error (Frobenius) of {} queries asked after the stream, by the "
      "entries "
      "that the summary may hold\n"
      "slope      of ln(error) against ln(entries): -1/2 for independent samples, -1 is what "
      "BalanceKV's theorem promises\n"
      "time       to take in one token, at the largest budget\n",
      o.experiment.queries));
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
  if (!o.plot.empty()) {
    check_plot(o.plot);
    OutputFile{o.plot};  // unwritable: found out now rather than at the end
  }
  o.json.open();
  std::vector<MemoryErrorRow> rows;
  {
    Progress progress("eval memory");
    rows = measure_memory_errors(source, o.experiment, [&](double done) { progress.update(done); });
  }
  if (o.json.text()) print_table(o, rows);
  o.json.write(to_json(o, rows));
  if (!o.plot.empty()) {
    write_plot(make_plot(rows, o), o.plot);
    if (o.json.text()) print(fmt::format("plot: {}\n", o.plot));
  }
}

}  // namespace

void add_eval_memory(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  MemoryErrorOptions& e = o.experiment;
  o.synth.kv_heads = 1;
  CLI::App* app = parent.add_subcommand(
      "memory", "Error against memory on long made-up streams, and its slope");
  app->add_option("--methods", o.methods, "Method strings, separated by ';' or given repeatedly")
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
  o.json.add_to(*app);
  app->add_option("--plot", o.plot, "Draw the errors: a .svg, .png or .pdf file")
      ->type_name("FILE");
  app->footer(
      "Example:\n  ballast eval memory --methods 'balancekv;uniform' --lengths 4096,65536 "
      "--plot memory.svg");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
