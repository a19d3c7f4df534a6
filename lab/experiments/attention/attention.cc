// ballast eval attention: the error of single layers, method by method.
#include <fmt/format.h>

#include <filesystem>

#include "experiments/attention/attention_error.h"
#include "experiments/attention/over_files.h"
#include "report/units.h"

namespace ballast {
namespace {

struct Attention {
  KvParameters source;
  std::vector<std::string> methods;
  AttentionErrorOptions experiment;
  std::string key_type = "f32";
  std::string value_type = "f32";

  void describe(Parameters& p) {
    source.describe(p, "First seed, and that of the made-up stream", true);
    p.add("--methods", methods, "Method strings, separated by ',' or ';' or given repeatedly",
          {.needed = true});
    describe_ends(p, experiment);
    p.add("--key-type", key_type, "Storage of keys: f32, bf16, f16, int8, int4, q4, q3, q2",
          {.type = "TYPE"});
    p.add("--value-type", value_type, "Storage of values", {.type = "TYPE"});
  }
};

Json row_of(const AttentionErrorCell& cell, double exact_bytes) {
  return {{"method", cell.method},
          {"rate", cell.rate},
          {"entries", cell.entries},
          {"cache_bytes", cell.bytes},
          {"ratio", exact_bytes / cell.bytes},
          {"compress_seconds", cell.seconds},
          {"error", cell.error},
          {"error_sd_seeds", cell.seed_deviation},
          {"error_sd_heads", cell.head_deviation},
          {"error_worst", cell.worst},
          {"error_by_layer", cell.layer_errors},
          {"reports", cell.reports}};
}

Plot make_plot(const Attention& o, const KvSource& source, const AttentionErrors& result) {
  Plot plot;
  plot.title = fmt::format("Attention error at equal memory: {}, {} tokens",
                           std::filesystem::path(source.name()).filename().string(),
                           format_count(result.shape.tokens));
  plot.x_title = "fraction of the middle that is kept";
  plot.y_title = fmt::format("relative error, last {} queries", o.experiment.queries);
  plot.log_x = plot.log_y = true;
  for (const AttentionErrorCell& cell : result.cells) {
    if (plot.lines.empty() || plot.lines.back().name != cell.method) {
      plot.lines.push_back({cell.method, {}});
    }
    plot.lines.back().points.push_back({cell.rate, cell.error, cell.seed_deviation});
  }
  return plot;
}

std::vector<std::string> notes_of(const AttentionErrorOptions& e, const AttentionErrors& result) {
  std::vector<std::string> notes = {
      fmt::format("first {} and last {} tokens exact, the {} between them compressed; {} seed{}",
                  e.sink, e.window, format_count(result.middle), e.seeds, e.seeds == 1 ? "" : "s"),
      fmt::format("error      ‖Z - exact‖ / ‖exact‖ (Frobenius) over the last {} queries, mean "
                  "over query heads and seeds",
                  e.queries),
      "± seeds    deviation over seeds of the mean over heads; ± heads: the other way round",
      fmt::format("entries    kept of the {0} in the middle, per KV head; every method may keep "
                  "rate × {0}",
                  format_count(result.middle)),
      fmt::format("cache      all of a KV head's cache, {} in float32 when nothing is compressed",
                  format_bytes(result.exact_bytes)),
      fmt::format("The middle is compressed before the last {} tokens' queries are known.",
                  e.window)};
  for (const AttentionErrorCell& cell : result.cells) {
    for (const std::string& report : cell.reports) {
      notes.push_back(fmt::format("{} at rate {:g}: {}", cell.method, cell.rate, report));
    }
  }
  return notes;
}

Result make_result(const Attention& o, const KvSource& source, const AttentionErrors& result) {
  const AttentionErrorOptions& e = o.experiment;
  Result out;
  out.experiment = "attention";
  out.title = "Attention error, " + describe(source, result.layers.size(), result.kv_heads.size());
  out.settings = o.source.settings(source);
  out.settings.update({{"sink", e.sink},
                       {"window", e.window},
                       {"queries", e.queries},
                       {"middle", result.middle},
                       {"seeds", e.seeds},
                       {"first_seed", e.first_seed},
                       {"key_type", o.key_type},
                       {"value_type", o.value_type},
                       {"exact_cache_bytes", result.exact_bytes}});
  out.columns = {{"method", "method"},
                 {"rate", "rate"},
                 {"entries", "entries", Unit::count},
                 {"cache_bytes", "cache/head", Unit::bytes},
                 {"ratio", "ratio", Unit::ratio},
                 {"compress_seconds", "time/head", Unit::seconds},
                 {"error", "error", Unit::number},
                 {"error_sd_seeds", "± seeds", Unit::number},
                 {"error_sd_heads", "± heads", Unit::number}};
  out.named_by = {"method", "rate"};
  out.supporting = {"compress_seconds", "cache_bytes",    "entries",
                    "error_sd_heads",   "error_sd_seeds", "ratio"};
  out.gap_key = "method";
  for (const AttentionErrorCell& cell : result.cells) {
    out.rows.push_back(row_of(cell, result.exact_bytes));
  }
  out.plots = {make_plot(o, source, result)};
  out.notes = notes_of(e, result);
  return out;
}

Json identity(const Attention& o, const KvSource& source) {
  const AttentionErrorOptions& e = o.experiment;
  Json methods = Json::array();
  for (const Policy& policy : e.policies) methods.push_back(policy.to_string());
  return {{"experiment", "attention"},
          {"source", o.source.identity(source)},
          {"methods", methods},
          {"rates", e.rates},
          {"seeds", {e.seeds, e.first_seed}},
          {"ends", {e.sink, e.window, e.queries}},
          {"types", {o.key_type, o.value_type}}};
}

Result measure(Attention o, Work& work) {
  for (const std::string& method : split_methods(o.methods)) {
    o.experiment.policies.push_back(Policy::parse(method));
  }
  o.experiment.key_type = parse_storage_type(o.key_type);
  o.experiment.value_type = parse_storage_type(o.value_type);
  o.experiment.first_seed = o.source.synth_options.seed;
  return over_files(o.source, work,
                    {.keys = {"error"},
                     .identity = [&](const KvSource& source) { return identity(o, source); },
                     .measure =
                         [&](const KvSource& source, ResultLog* log, const Advance& advance) {
                           o.experiment.layers = o.source.selected_layers(source);
                           o.experiment.kv_heads = o.source.selected_kv_heads(source);
                           return make_result(
                               o, source,
                               measure_attention_errors(source, o.experiment, advance, log));
                         }});
}

}  // namespace

Experiment attention_experiment() {
  return experiment(
      "attention", "Error of compressed attention in single layers, method by method",
      "BalanceKV, Figure 1",
      "  ballast eval attention stream.safetensors "
      "--methods 'balancekv;uniform;streaming-llm' --rates 0.5,0.25 --plot errors.svg",
      &measure);
}

}  // namespace ballast
