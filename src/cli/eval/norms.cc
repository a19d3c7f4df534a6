// ballast eval norms: the norms of queries, keys and values.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/eval/experiment.h"
#include "cli/eval/over_files.h"
#include "cli/kv_options.h"
#include "eval/single_layer/norms.h"

namespace ballast::cli {
namespace {

struct Options {
  KvOptions source;
  ResultOutput output;
};

Json row_of(const Json& layer, std::size_t tokens, const KvNorms& norms) {
  Json row = {{"layer", layer}, {"tokens", tokens}};
  auto add = [&](const std::string& name, const MomentSums& sums) {
    const Moments m = sums.moments();
    row[name] = m.mean;
    row[name + "_ci"] = sums.confidence();
    row[name + "_sd"] = m.deviation;
    row[name + "_largest"] = m.largest;
  };
  add("query", norms.query);
  add("key_shifted", norms.shifted);
  add("value", norms.value);
  add("key", norms.key);
  return row;
}

Json to_json(const KvNorms& norms) {
  Json out = Json::array();
  for (const MomentSums* s : {&norms.query, &norms.shifted, &norms.value, &norms.key}) {
    out.push_back({s->count, s->sum, s->squares, s->largest});
  }
  return out;
}

KvNorms norms_from(const Json& json) {
  auto sums = [&](std::size_t i) {
    const Json& s = json.at(i);
    return MomentSums{number_of(s.at(0)), number_of(s.at(1)), number_of(s.at(2)),
                      number_of(s.at(3))};
  };
  return {.query = sums(0), .key = sums(3), .shifted = sums(1), .value = sums(2)};
}

Plot make_plot(const std::vector<Json>& rows) {
  Plot plot;
  plot.kind = Plot::Kind::bars;
  plot.title = "Mean norms by layer";
  plot.x_title = "layer";
  plot.y_title = "ℓ2 norm";
  for (const char* name : {"query", "key_shifted", "value"}) {
    Plot::Line line{name, {}};
    for (const Json& row : rows)
      line.points.push_back({0, row[name], row[name + std::string("_sd")]});
    plot.lines.push_back(std::move(line));
  }
  for (const Json& row : rows) {
    plot.x_labels.push_back(row["layer"].is_string() ? "all" : row["layer"].dump());
  }
  return plot;
}

/// Of one file or stream.
Result measure(Options& o, const KvSource& source, ResultLog* log, const Advance& advance) {
  const std::vector<std::size_t> layers = o.source.selected_layers(source);
  const std::vector<std::size_t> kv_heads = o.source.selected_kv_heads(source);
  Result result;
  result.experiment = "norms";
  result.title = "Norms, " + describe(source, layers.size(), kv_heads.size());
  result.settings = o.source.settings(source);
  const std::size_t tokens = source.shape().tokens;
  KvNorms all;
  ResultLog none;
  ResultLog& kept = log == nullptr ? none : *log;
  const auto count = static_cast<double>(layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t number = source.layer_number(layers[l]);
    const auto part = [&](double done) { advance((static_cast<double>(l) + done) / count); };
    const KvNorms norms = norms_from(kept.find_or_make(fmt::format("layer {}", number), [&] {
      return to_json(measure_norms(source, layers[l], kv_heads, part));
    }));
    all.add(norms);
    result.rows.push_back(row_of(number, tokens, norms));
  }
  if (layers.size() > 1) result.rows.push_back(row_of("all", tokens, all));
  result.columns = {{"layer", "layer"},
                    {"tokens", "tokens", Unit::count},
                    {"query", "query", Unit::number, "query_ci"},
                    {"key_shifted", "key, shifted", Unit::number, "key_shifted_ci"},
                    {"value", "value", Unit::number, "value_ci"},
                    {"key", "key", Unit::number, "key_ci"},
                    {"query_largest", "largest query", Unit::number},
                    {"key_shifted_largest", "largest key, shifted", Unit::number},
                    {"value_largest", "largest value", Unit::number}};
  result.supporting = {"value_largest", "key_shifted_largest", "query_largest", "tokens"};
  result.plots = {make_plot(result.rows)};
  result.notes = {
      "mean ± half of the 95% confidence interval (1.96 deviations / √n) over all tokens and "
      "heads, taken as independent",
      "key, shifted   less the mean of the head's keys, which attention does not notice",
      "bars in the plot: one deviation"};
  return result;
}

void run(Options& o) {
  FileExperiment experiment;
  experiment.command = "eval norms";
  experiment.keys = {"query", "key_shifted", "value", "key"};
  experiment.identity = [&](const KvSource& source) {
    return Json{{"experiment", "norms"}, {"source", o.source.identity(source)}};
  };
  experiment.measure = [&](const KvSource& source, ResultLog* log, const Advance& advance) {
    return measure(o, source, log, advance);
  };
  over_files(o.source, o.output, experiment);
}

}  // namespace

void add_eval_norms(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "norms", "Norms of queries, keys and values, with confidence (BalanceKV, Table 3)");
  options->source.add_to(*app, "Seed of the made-up stream", true);
  options->output.add_to(*app);
  app->footer(
      "Example:\n  ballast eval norms qkv.safetensors --select-layers 0,2 --json=norms.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
