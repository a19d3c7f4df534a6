// ballast compress: runs queries, keys and values through a cache and writes what it keeps.
#include <fmt/format.h>

#include "base/fail.h"
#include "cli/command.h"
#include "experiments/attention/compress.h"
#include "experiments/data/kv_file.h"
#include "program/commands.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string file;
  std::string method;
  std::string protocol = "prefill";
  std::string key_type = "f32";
  std::string value_type = "f32";
  std::uint64_t seed = 0;
  std::size_t queries = 256;
  std::string out;
  std::string save_cache;
  JsonOption json;
};

/// Bytes of the same tokens in float32.
double exact_bytes(const KvShape& s) {
  return static_cast<double>(s.layers * s.kv_heads * s.tokens *
                             (stored_row_bytes(StorageType::f32, s.key_dim) +
                              stored_row_bytes(StorageType::f32, s.value_dim)));
}

void print_layers(const KvSource& source, const Compressed& result) {
  Table table({{"layer", Align::right},
               {"entries/head", Align::right},
               {"kept", Align::right},
               {"time", Align::right},
               {"error", Align::right},
               {"worst head", Align::right}});
  const auto tokens = static_cast<double>(source.shape().tokens);
  for (std::size_t l = 0; l < result.layers.size(); ++l) {
    const CompressedLayer& layer = result.layers[l];
    table.add({std::to_string(source.layer_number(l)), format_count(layer.entries),
               format_percent(static_cast<double>(layer.entries) / tokens),
               format_seconds(layer.seconds), format_number(layer.error),
               format_number(layer.worst)});
  }
  print(table.to_string(terminal_width()) + "\n");
}

void print_bytes(const CacheBytes& bytes, double exact) {
  Table table({{"part"}, {"bytes", Align::right}, {"share", Align::right}});
  auto add = [&](const char* part, double n) {
    table.add({part, format_bytes(n), format_percent(n / exact)});
  };
  add("sink", static_cast<double>(bytes.sink));
  add("summary", static_cast<double>(bytes.summary));
  add("window", static_cast<double>(bytes.window));
  add("watching attention", static_cast<double>(bytes.attention_stats));
  add("total", static_cast<double>(bytes.total()));
  add("exact, float32", exact);
  print(table.to_string(terminal_width()));
  print(fmt::format("\nratio      {:.2f}×\n", exact / static_cast<double>(bytes.total())));
}

Json to_json(const Options& o, const KvSource& source, const Compressed& result) {
  const KvShape& s = source.shape();
  const CacheBytes bytes = result.cache.bytes();
  Json layers = Json::array();
  for (std::size_t l = 0; l < result.layers.size(); ++l) {
    const CompressedLayer& layer = result.layers[l];
    layers.push_back({{"layer", source.layer_number(l)},
                      {"entries", layer.entries},
                      {"error", layer.error},
                      {"error_worst", layer.worst},
                      {"seconds", layer.seconds}});
  }
  return {{"file", o.file},
          {"method", result.cache.options().policy.to_string()},
          {"protocol", o.protocol},
          {"seed", o.seed},
          {"tokens", s.tokens},
          {"kv_heads", s.kv_heads},
          {"scores", result.scores.empty() ? Json() : Json(result.scores)},
          {"layers", std::move(layers)},
          {"bytes",
           {{"sink", bytes.sink},
            {"summary", bytes.summary},
            {"window", bytes.window},
            {"watch", bytes.attention_stats},
            {"total", bytes.total()},
            {"exact", exact_bytes(s)}}},
          {"reports", reports_of(result.cache)}};
}

void run(Options& o) {
  CacheOptions options;
  options.policy = Policy::parse(o.method);
  options.protocol = parse_protocol(o.protocol);
  options.key_type = parse_storage_type(o.key_type);
  options.value_type = parse_storage_type(o.value_type);
  options.seed = o.seed;
  const KvFile source(o.file);
  o.json.open();
  for (const std::string& path : {o.out, o.save_cache}) {
    if (!path.empty()) OutputFile{path};  // fails now rather than at the end
  }
  auto result = [&] {
    Progress progress("compress");
    return compress(source, options, o.queries, [&](double done) { progress.update(done); });
  }();
  if (!o.out.empty()) write_kept(result.cache, source, o.out);
  if (!o.save_cache.empty()) {
    result.cache.save(o.save_cache, fmt::format("ballast compress {}", o.file));
  }
  if (o.json.text()) {
    const KvShape& s = source.shape();
    const auto say = [](std::string_view text) { print(wrap_lines(text, terminal_width())); };
    say(fmt::format("{}: {} tokens, {} KV heads a layer, {}, {}\n\n", o.file,
                    format_count(s.tokens), s.kv_heads, result.cache.options().policy.to_string(),
                    o.protocol));
    print_layers(source, result);
    print_bytes(result.cache.bytes(), exact_bytes(s));
    say(
        fmt::format("error      ‖Z - exact‖ / ‖exact‖ (Frobenius), mean over query heads, of the "
                    "last {} queries asked again at the end\n",
                    result.queries));
    if (!result.scores.empty()) {
      say(fmt::format("scores     {}\n", result.scores == "self-attention"
                                             ? "self-attention: the file has none of this kind"
                                             : result.scores + ", of a replay pass"));
    }
    for (const std::string& report : reports_of(result.cache)) say(report + "\n");
    if (!o.out.empty()) print(fmt::format("kept entries: {}\n", o.out));
    if (!o.save_cache.empty()) print(fmt::format("saved cache: {}\n", o.save_cache));
  }
  o.json.write(to_json(o, source, result));
}

}  // namespace

void add_compress(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "compress", "Compress keys and values with a method and write what it keeps");
  app->add_option("FILE", o.file, "Tensors layer.{i}.q|k|v of [heads, tokens, dim] (safetensors)")
      ->required()
      ->type_name("");
  app->add_option("--method", o.method, "Method string, such as balancekv:rate=0.25")
      ->required()
      ->type_name("METHOD");
  app->add_option("-o,--out", o.out, "Write kept positions, weights, keys and values (safetensors)")
      ->type_name("FILE");
  app->add_option("--save-cache", o.save_cache, "Write the cache, for ballast inspect and others")
      ->type_name("FILE");
  app->add_option("--protocol", o.protocol,
                  "prefill: summarise once, at the end; stream: as tokens come, in bounded memory")
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--key-type", o.key_type,
                  "Storage of keys: f32, bf16, f16, int8, int4, q4, q3, q2")
      ->capture_default_str()
      ->type_name("TYPE");
  app->add_option("--value-type", o.value_type, "Storage of values")
      ->capture_default_str()
      ->type_name("TYPE");
  app->add_option("--seed", o.seed, "Seed")->capture_default_str();
  app->add_option("--queries", o.queries, "Last queries on which the error is measured")
      ->capture_default_str();
  o.json.add_to(*app);
  app->footer(
      "Example:\n  ballast compress stream.safetensors --method balancekv:rate=0.25 "
      "-o kept.safetensors");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
