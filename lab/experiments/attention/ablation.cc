// ballast eval ablation: error and time of BalanceKV over its block size.
#include <fmt/format.h>

#include "base/fail.h"
#include "experiments/attention/attention_error.h"
#include "experiments/attention/over_files.h"

namespace ballast {
namespace {

struct Ablation {
  KvParameters source;
  std::string method = "balancekv";
  std::vector<std::size_t> blocks = {64, 128, 256};
  AttentionErrorOptions experiment;

  void describe(Parameters& p) {
    experiment.rates = {0.5, 0.25, 0.125};
    source.describe(p, "First seed, and that of the made-up stream", true);
    p.add("--method", method, "A method with a block size, and its other parameters",
          {.type = "METHOD"});
    p.add("--blocks", blocks, "Tokens of a block");
    describe_ends(p, experiment);
  }
};

/// One layer's cells: rows of a table in the paper.
void add_layer(const Ablation& o, std::size_t number, const AttentionErrors& found, Result& out) {
  const std::size_t rates = found.cells.size() / o.blocks.size();
  for (std::size_t i = 0; i < found.cells.size(); ++i) {
    const AttentionErrorCell& cell = found.cells[i];
    out.rows.push_back({{"layer", number},
                        {"block", o.blocks[i / rates]},
                        {"rate", cell.rate},
                        {"entries", cell.entries},
                        {"cache_bytes", cell.bytes},
                        {"compress_seconds", cell.seconds},
                        {"error", cell.error},
                        {"error_sd_seeds", cell.seed_deviation},
                        {"error_sd_heads", cell.head_deviation}});
  }
}

/// A line a layer and block: `key` of the rows against the rate.
Plot make_plot(const Result& result, const char* key, const char* deviation, const char* title) {
  Plot plot;
  plot.title = title;
  plot.x_title = "fraction of the middle that is kept";
  plot.y_title = title;
  plot.log_x = plot.log_y = true;
  for (const Json& row : result.rows) {
    const std::string name = fmt::format("layer {}, block {}", row["layer"].get<std::size_t>(),
                                         row["block"].get<std::size_t>());
    if (plot.lines.empty() || plot.lines.back().name != name) plot.lines.push_back({name, {}});
    plot.lines.back().points.push_back(
        {row["rate"], row[key], deviation == nullptr ? 0.0 : row[deviation].get<double>()});
  }
  return plot;
}

Result make_result(const Ablation& o, const KvSource& source, std::size_t layers) {
  const AttentionErrorOptions& e = o.experiment;
  Result out;
  out.experiment = "ablation";
  out.title =
      fmt::format("Block size of {}, {}", o.method, describe(source, layers, e.kv_heads.size()));
  out.settings = o.source.settings(source);
  out.settings.update(Json{{"method", o.method},
                           {"blocks", o.blocks},
                           {"rates", e.rates},
                           {"sink", e.sink},
                           {"window", e.window},
                           {"queries", e.queries},
                           {"seeds", e.seeds},
                           {"first_seed", e.first_seed}});
  out.columns = {{"layer", "layer"},
                 {"block", "block"},
                 {"rate", "rate"},
                 {"entries", "entries", Unit::count},
                 {"cache_bytes", "cache/head", Unit::bytes},
                 {"compress_seconds", "time/head", Unit::seconds},
                 {"error", "error", Unit::number, "error_sd_seeds"}};
  out.named_by = {"layer", "block", "rate"};
  out.supporting = {"compress_seconds", "cache_bytes", "entries"};
  out.gap_key = "block";
  out.notes = {
      fmt::format("error   ‖Z - exact‖ / ‖exact‖ (Frobenius) over the last {} queries, mean over "
                  "query heads and {} seeds; ±: deviation over seeds",
                  e.queries, e.seeds),
      "time    to compress the middle of one KV head",
      fmt::format("first {} and last {} tokens exact, the middle between them compressed before "
                  "the last {} tokens' queries are known",
                  e.sink, e.window, e.window)};
  return out;
}

/// Of one file or stream.
Result measure_source(Ablation& o, const KvSource& source, ResultLog* log, const Advance& advance) {
  o.experiment.kv_heads = o.source.selected_kv_heads(source);
  const std::vector<std::size_t> layers = o.source.selected_layers(source);
  Result result = make_result(o, source, layers.size());
  const auto count = static_cast<double>(layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    o.experiment.layers = {layers[l]};
    const AttentionErrors found = measure_attention_errors(
        source, o.experiment,
        [&](double done) { advance((static_cast<double>(l) + done) / count); }, log);
    add_layer(o, source.layer_number(layers[l]), found, result);
  }
  result.plots = {make_plot(result, "error", "error_sd_seeds", "relative error"),
                  make_plot(result, "compress_seconds", nullptr, "seconds per KV head")};
  return result;
}

Result measure(Ablation o, Work& work) {
  require(!o.blocks.empty(), "eval ablation: --blocks is empty");
  for (std::size_t block : o.blocks) {
    o.experiment.policies.push_back(
        Policy::parse(o.method + (o.method.find(':') == std::string::npos ? ":" : ",") +
                      fmt::format("block={}", block)));
  }
  o.experiment.first_seed = o.source.synth_options.seed;
  return over_files(
      o.source, work,
      {.keys = {"error", "compress_seconds"},
       .identity =
           [&](const KvSource& source) {
             const AttentionErrorOptions& e = o.experiment;
             return Json{{"experiment", "ablation"},
                         {"source", o.source.identity(source)},
                         {"method", o.method},
                         {"blocks", o.blocks},
                         {"rates", e.rates},
                         {"seeds", {e.seeds, e.first_seed}},
                         {"ends", {e.sink, e.window, e.queries}}};
           },
       .measure = [&](const KvSource& source, ResultLog* log,
                      const Advance& advance) { return measure_source(o, source, log, advance); }});
}

}  // namespace

Experiment ablation_experiment() {
  return experiment(
      "ablation", "Error and time of BalanceKV by block size and rate", "BalanceKV, Figure 3",
      "  ballast eval ablation qkv.safetensors --select-layers 1,15 --plot ablation.svg", &measure);
}

}  // namespace ballast
