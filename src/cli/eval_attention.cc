// ballast eval attention: the single-layer experiment.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fail.h"
#include "cli/command.h"
#include "eval/attention_error.h"
#include "eval/kv_file.h"
#include "report/plot.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string file;
  bool synth = false;
  SynthOptions synth_options;
  std::vector<std::string> methods;
  AttentionErrorOptions experiment;
  std::string key_type = "f32";
  std::string value_type = "f32";
  std::string layers;
  std::string kv_heads;
  std::string plot;
  JsonOption json;
};

std::unique_ptr<KvSource> open_source(const Options& o) {
  require(o.synth != !o.file.empty(), "eval attention: give a file or --synth, {}",
          o.synth ? "not both" : "one of the two");
  if (o.synth) return std::make_unique<Synth>(o.synth_options);
  return std::make_unique<KvFile>(o.file);
}

/// Layers as the model numbers them, as the source counts them.
std::vector<std::size_t> find_layers(const KvSource& source, const std::string& text) {
  std::vector<std::size_t> out;
  for (std::size_t number : parse_selection(text, "--select-layers")) {
    std::size_t i = 0;
    while (i < source.shape().layers && source.layer_number(i) != number) ++i;
    require(i < source.shape().layers, "{}: there is no layer {}", source.name(), number);
    out.push_back(i);
  }
  return out;
}

Json to_json(const Options& o, const KvSource& source, const AttentionErrors& result) {
  const KvShape& s = result.shape;
  Json layers = Json::array();
  for (std::size_t l : result.layers) layers.push_back(source.layer_number(l));
  Json cells = Json::array();
  for (const AttentionErrorCell& cell : result.cells) {
    cells.push_back({{"method", cell.method},
                     {"rate", cell.rate},
                     {"entries", cell.entries},
                     {"cache_bytes", cell.bytes},
                     {"error", cell.error},
                     {"error_sd_seeds", cell.seed_deviation},
                     {"error_sd_heads", cell.head_deviation},
                     {"error_worst", cell.worst},
                     {"error_by_layer", cell.layer_errors},
                     {"compress_seconds", cell.seconds},
                     {"reports", cell.reports}});
  }
  Json out = {{"experiment", "attention"},
              {"source", source.name()},
              {"layers", layers},
              {"heads", s.heads},
              {"kv_heads", result.kv_heads},
              {"tokens", s.tokens},
              {"dim", s.key_dim},
              {"sink", o.experiment.sink},
              {"window", o.experiment.window},
              {"queries", o.experiment.queries},
              {"middle", result.middle},
              {"seeds", o.experiment.seeds},
              {"first_seed", o.experiment.first_seed},
              {"key_type", o.key_type},
              {"value_type", o.value_type},
              {"exact_cache_bytes", result.exact_bytes},
              {"results", std::move(cells)}};
  if (o.synth) {
    out["synth"] = {{"seed", o.synth_options.seed},
                    {"clusters", o.synth_options.clusters},
                    {"needle", o.synth_options.needle}};
  }
  return out;
}

void print_table(const Options& o, const KvSource& source, const AttentionErrors& result) {
  const KvShape& s = result.shape;
  const std::size_t heads = result.kv_heads.size() * s.group();
  print(fmt::format("{}: {} tokens, {} layer{}, {} of {} query heads, dimension {}\n",
                    source.name(), format_count(s.tokens), result.layers.size(),
                    result.layers.size() == 1 ? "" : "s", heads, s.heads, s.key_dim));
  print(fmt::format(
      "first {} and last {} tokens exact, the {} between them compressed; {} seed{}\n\n",
      o.experiment.sink, o.experiment.window, format_count(result.middle), o.experiment.seeds,
      o.experiment.seeds == 1 ? "" : "s"));
  Table table({{"method"},
               {"rate", Align::right},
               {"entries", Align::right},
               {"cache/head", Align::right},
               {"ratio", Align::right},
               {"time/head", Align::right},
               {"error", Align::right},
               {"± seeds", Align::right},
               {"± heads", Align::right}});
  std::string before;
  for (const AttentionErrorCell& cell : result.cells) {
    if (!before.empty() && before != cell.method) table.add_gap();
    before = cell.method;
    table.add({cell.method, fmt::format("{:g}", cell.rate),
               format_count(static_cast<std::uint64_t>(std::llround(cell.entries))),
               format_bytes(cell.bytes), fmt::format("{:.2f}×", result.exact_bytes / cell.bytes),
               format_seconds(cell.seconds), format_number(cell.error),
               format_number(cell.seed_deviation), format_number(cell.head_deviation)});
  }
  print(table.to_string());
  print(fmt::format(
      "\nerror      ‖Z - exact‖ / ‖exact‖ (Frobenius) over the last {} queries, mean over query "
      "heads and seeds\n"
      "± seeds    deviation over seeds of the mean over heads; ± heads: the other way round\n"
      "entries    kept of the {} in the middle, per KV head; every method may keep rate × {}\n"
      "cache      all of a KV head's cache, {} in float32 when nothing is compressed\n"
      "The middle is compressed before the last {} tokens' queries are known.\n",
      o.experiment.queries, format_count(result.middle), format_count(result.middle),
      format_bytes(result.exact_bytes), o.experiment.window));
  for (const AttentionErrorCell& cell : result.cells) {
    for (const std::string& report : cell.reports) {
      print(fmt::format("{} at rate {:g}: {}\n", cell.method, cell.rate, report));
    }
  }
}

Plot make_plot(const Options& o, const KvSource& source, const AttentionErrors& result) {
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

void run(Options& o) {
  for (const std::string& method : split_methods(o.methods)) {
    o.experiment.policies.push_back(Policy::parse(method));
  }
  o.experiment.key_type = parse_storage_type(o.key_type);
  o.experiment.value_type = parse_storage_type(o.value_type);
  o.experiment.first_seed = o.synth_options.seed;
  const auto source = open_source(o);
  o.experiment.layers = find_layers(*source, o.layers);
  o.experiment.kv_heads = parse_selection(o.kv_heads, "--select-kv-heads");
  if (!o.plot.empty()) {
    check_plot(o.plot);
    OutputFile{o.plot};  // unwritable: found out now rather than at the end
  }
  o.json.open();
  AttentionErrors result;
  {
    Progress progress("eval attention");
    result = measure_attention_errors(*source, o.experiment,
                                      [&](double done) { progress.update(done); });
  }
  if (o.json.text()) print_table(o, *source, result);
  o.json.write(to_json(o, *source, result));
  if (!o.plot.empty()) {
    write_plot(make_plot(o, *source, result), o.plot);
    if (o.json.text()) print(fmt::format("plot: {}\n", o.plot));
  }
}

}  // namespace

void add_eval_attention(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  AttentionErrorOptions& e = o.experiment;
  CLI::App* app = parent.add_subcommand(
      "attention", "Error of compressed attention in single layers, method by method");
  app->add_option("FILE", o.file, "Tensors layer.{i}.q|k|v of [heads, tokens, dim] (safetensors)")
      ->type_name("");
  app->add_flag("--synth", o.synth, "Use a made-up stream instead of a file");
  app->add_option("--methods", o.methods, "Method strings, separated by ';' or given repeatedly")
      ->required()
      ->allow_extra_args(false)
      ->type_name("LIST");
  app->add_option("--rates", e.rates, "Fractions of the middle that are kept")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("0.5,0.25,0.125,0.0625")
      ->type_name("LIST");
  app->add_option("--seeds", e.seeds, "Runs of each method, with seeds counted up from --seed")
      ->capture_default_str();
  app->add_option("--seed", o.synth_options.seed, "First seed, and that of the made-up stream")
      ->capture_default_str();
  app->add_option("--sink", e.sink, "First tokens kept exactly")->capture_default_str();
  app->add_option("--window", e.window, "Last tokens kept exactly")->capture_default_str();
  app->add_option("--queries", e.queries, "Last queries that are answered, up to --window")
      ->capture_default_str();
  app->add_option("--key-type", o.key_type, "Storage of keys: f32, bf16, f16, int8, int4")
      ->capture_default_str();
  app->add_option("--value-type", o.value_type, "Storage of values")->capture_default_str();
  app->add_option("--select-layers", o.layers, "Only these layers, such as 0,2,5-7");
  app->add_option("--select-kv-heads", o.kv_heads, "Only these KV heads");
  o.json.add_to(*app);
  app->add_option("--plot", o.plot, "Draw the errors: a .svg, .png or .pdf file")
      ->type_name("FILE");
  add_synth_options(*app, o.synth_options, "With --synth");
  app->footer(
      "Example:\n  ballast eval attention stream.safetensors "
      "--methods 'balancekv;uniform;streaming-llm' --rates 0.5,0.25 --plot errors.svg");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
