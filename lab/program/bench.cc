// ballast bench: the speed of a model with each method, beside the machine's floors.
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "experiments/speed/bench_model.h"
#include "experiments/speed/speed_report.h"
#include "program/bench_serve.h"
#include "program/commands.h"
#include "report/progress.h"
#include "report/units.h"
#include "simd/cpu.h"

namespace ballast::cli {
namespace {

struct Options {
  BenchModelParameters model;
  std::vector<std::string> methods;
  std::vector<std::size_t> prompts;
  std::optional<std::size_t> generate;
  std::size_t batch = 1;
  std::size_t repeat = 1;
  CacheFlags cache;
  std::vector<std::string> memory;
  std::string scale;
  bool serve = false;
  std::vector<std::size_t> streams;
  double limit = 0;
  std::string against;
  std::string plot;
  std::string target = "native";
  TableOutput output;
};

/// The options that every mode uses.
struct Task {
  Options& o;
  const Model& model;
  CacheOptions cache;
  std::vector<Policy> policies;

  std::vector<std::size_t> prompts(std::vector<std::size_t> otherwise) const {
    return o.prompts.empty() ? otherwise : o.prompts;
  }
  Json head(const char* mode) const {
    return {{"benchmark", mode},
            {"model", o.model.name()},
            {"target", o.target},
            {"weight_bytes", model.file().bytes()},
            {"protocol", to_string(cache.protocol)},
            {"key_type", to_string(cache.key_type)},
            {"value_type", to_string(cache.value_type)}};
  }
  void print_model() const {
    o.output.say(fmt::format("{}: {}, keys {}, values {}, {}{}\n", o.model.name(),
                             format_bytes(static_cast<double>(model.file().bytes())),
                             to_string(cache.key_type), to_string(cache.value_type),
                             to_string(cache.protocol),
                             o.target == "native" ? "" : ", target " + o.target));
  }
};

void run_speed(const Task& t) {
  SpeedOptions s;
  s.prompts = t.prompts(s.prompts);
  s.generate = t.o.generate.value_or(s.generate);
  s.batch = t.o.batch;
  s.policies = t.policies;
  s.cache = t.cache;
  require(t.o.repeat > 0, "--repeat must be at least 1");
  const Machine machine = measure_machine();
  std::vector<SpeedRow> rows;
  std::optional<Peer> peer;
  // Methods take turns, so that other load on the machine affects all of them.
  for (std::size_t run = 1; run <= t.o.repeat; ++run) {
    std::vector<SpeedRow> latest;
    {
      Progress progress(t.o.repeat == 1 ? "bench"
                                        : fmt::format("bench, run {} of {}", run, t.o.repeat));
      latest = measure_speed(t.model, s, machine, [&](double done) { progress.update(done); });
    }
    if (run == 1) rows = latest;
    keep_least(rows, latest);
    if (t.o.against.empty()) continue;
    const Peer of_peer =
        run_peer(t.o.against, t.model.file().path(), s.prompts, s.generate, machine.threads);
    if (run == 1) peer = of_peer;
    peer->keep_least(of_peer);
  }
  t.print_model();
  t.o.output.say(to_text(machine) + "\n\n");
  const Json results = to_json(std::span<const SpeedRow>(rows), peer ? &*peer : nullptr);
  t.o.output.show(speed_table(rows, peer ? &*peer : nullptr),
                  peer ? with_peer(results, *peer) : results);
  t.o.output.say(fmt::format(
      "\nfirst token  time for the prompt; prompt / floor: against its multiply-adds at the "
      "machine's peak\n"
      "summarise    the method's work at the end of the prompt\n"
      "a token      mean of {} after the prompt, {}; decode / floor: against reading weights and "
      "cache once\n",
      s.generate,
      s.batch == 1 ? "one sequence" : fmt::format("each of {} sequences a token", s.batch)));
  if (peer) t.o.output.say("prompt speed, decode speed  times as fast as " + peer->name + "\n");
  if (t.o.repeat > 1) {
    t.o.output.say(fmt::format("times are the least of {} runs, in turns\n", t.o.repeat));
  }
  Json json = t.head("speed");
  json["machine"] = to_json(machine);
  json["results"] = results;
  if (peer) json["peer"] = to_json(*peer);
  t.o.output.finish(json);
}

void run_throughput(const Task& t) {
  ThroughputOptions s;
  s.prompts = t.prompts(s.prompts);
  s.generate = t.o.generate.value_or(s.generate);
  s.policies = t.policies;
  s.cache = t.cache;
  for (const std::string& size : t.o.memory) s.memory.push_back(parse_amount(size, "--memory"));
  if (t.o.batch > 1) s.most_batch = t.o.batch;
  s.repeat = t.o.repeat;
  s.read_once = true;  // `eval throughput` reads them all
  std::vector<ThroughputRow> rows;
  {
    Progress progress("bench");
    rows = measure_throughput(t.model, s, [&](double done) { progress.update(done); });
  }
  t.print_model();
  t.o.output.say(fmt::format("{} tokens generated a sequence\n\n", s.generate));
  const Json results = to_json(std::span<const ThroughputRow>(rows));
  t.o.output.show(throughput_table(rows), results);
  t.o.output.say(
      "\nmemory    for weights, caches and scratch\n"
      "batch     the most sequences that fit, continued together; (limit): more would fit\n"
      "prompts   ~: one was read, and its time counts for each of the batch\n"
      "tokens/s  generated tokens / (prompts + decode); decode tokens/s: / decode\n"
      "ratio     of tokens/s, against the first method; decode ratio: of decode tokens/s\n");
  Json json = t.head("throughput");
  json["memory"] = s.memory;
  json["results"] = results;
  t.o.output.finish(json);
}

void run_scale(const Task& t) {
  ScaleOptions s;
  const std::size_t dots = t.o.scale.find("..");
  require(dots != std::string::npos, "--scale {}: expected a range such as 1k..64k", t.o.scale);
  s.from = parse_amount(std::string_view(t.o.scale).substr(0, dots), "--scale");
  s.to = parse_amount(std::string_view(t.o.scale).substr(dots + 2), "--scale");
  s.generate = t.o.generate.value_or(s.generate);
  s.policies = t.policies;
  s.cache = t.cache;
  s.seconds = t.o.limit;
  std::vector<ScaleRow> rows;
  {
    Progress progress("bench");
    rows = measure_scale(t.model, s, [&](double done) { progress.update(done); });
  }
  t.print_model();
  t.o.output.say("\n");
  const Json results = to_json(std::span<const ScaleRow>(rows));
  t.o.output.show(scale_table(rows), results);
  Json json = t.head("scale");
  json["results"] = results;
  t.o.output.finish(json);
  if (t.o.plot.empty()) return;
  const std::filesystem::path plot = t.o.plot;
  std::filesystem::path memory = plot;
  memory.replace_filename(plot.stem().string() + "-memory" + plot.extension().string());
  write_plots({scale_plot(rows, false)}, plot);
  write_plots({scale_plot(rows, true)}, memory);
  for (const auto& path : {plot, memory}) name_written(path.string());
}

void run_serve(const Task& t) {
  ServeBench s;
  s.prompts = t.prompts(s.prompts);
  if (!t.o.streams.empty()) s.streams = t.o.streams;
  for (std::size_t streams : s.streams) {
    require(streams >= 1 && streams <= 1024, "--streams {}: expected 1 to 1024", streams);
  }
  s.generate = t.o.generate.value_or(s.generate);
  s.policies = t.policies;
  s.cache = t.cache;
  const std::vector<ServeRow> rows = measure_serve(t.model, s);
  t.print_model();
  t.o.output.say("\n");
  const Json results = to_json(std::span<const ServeRow>(rows));
  t.o.output.show(serve_table(rows), results);
  t.o.output.say(
      fmt::format("\nfirst token  from the request on, median and 95th percentile of the streams\n"
                  "a token      median of the time between two of one stream\n"
                  "tokens/s     of all streams, {} each, reading of the prompts included\n"
                  "caches       of all streams, after their prompts\n"
                  "memory       the most that the process held: weights, caches, clients\n",
                  s.generate));
  Json json = t.head("serve");
  json["results"] = results;
  t.o.output.finish(json);
}

void run(Options& o) {
  require(!o.serve || (o.memory.empty() && o.scale.empty() && o.against.empty() && o.batch == 1 &&
                       o.repeat == 1),
          "bench: --serve goes with none of --memory, --scale, --against, --batch and --repeat");
  require(o.streams.empty() || o.serve, "bench: --streams needs --serve");
  require(o.memory.empty() || o.scale.empty(), "bench: --memory or --scale, not both");
  require(o.against.empty() || (o.memory.empty() && o.scale.empty()),
          "bench: --against goes with neither --memory nor --scale");
  require(o.plot.empty() || !o.scale.empty(), "bench: --plot needs --scale");
  use_target("--target", o.target);
  CacheOptions cache = o.cache.parse();
  if (!o.scale.empty()) cache.protocol = Protocol::stream;
  const bool by_budget = !o.scale.empty();
  if (o.methods.empty()) {
    o.methods = {o.serve             ? "exact"
                 : by_budget         ? "balancekv:budget=1024;streaming-llm:budget=1024"
                 : !o.memory.empty() ? "exact;h2o:rate=0.2;balancekv:rate=0.25"
                                     : "exact;balancekv:rate=0.25"};
  }
  std::vector<Policy> policies;
  for (const std::string& method : split_methods(o.methods)) {
    policies.push_back(Policy::parse(method));
  }
  if (!o.plot.empty()) {
    check_plot(o.plot);
    OutputFile{o.plot};  // fails now rather than at the end if unwritable
  }
  o.output.open();
  const BenchModel file(o.model);
  if (!o.model.keep.empty()) name_written(o.model.keep);
  const Model model(file.path());
  const Task task{o, model, cache, std::move(policies)};
  if (!o.memory.empty()) return run_throughput(task);
  if (!o.scale.empty()) return run_scale(task);
  if (o.serve) return run_serve(task);
  run_speed(task);
}

void add_measurements(CLI::App& app, Options& o) {
  app.add_option("--methods", o.methods,
                 "Method strings, separated by ',' or ';' or given repeatedly")
      ->allow_extra_args(false)
      ->type_name("LIST");
  app.add_option("--prompt", o.prompts, "Lengths of prompts, in tokens")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("512,4096,16384")
      ->type_name("LIST");
  app.add_option("--generate", o.generate, "Tokens made after each prompt")
      ->default_str("64")
      ->type_name("N");
  app.add_option("--batch", o.batch, "Sequences continued together; with --memory: at most")
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--repeat", o.repeat,
                 "Runs of each, --against included, in turns; of every time the least counts")
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--against", o.against,
                 "A command that measures the same with another program; see lab/bench/peers")
      ->type_name("CMD");
  app.add_option("--memory", o.memory,
                 "Instead: tokens a second of the largest batch that fits, 512 tokens after "
                 "prompts of 512 and 2048; or one after another in several sizes")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("SIZES");
  app.add_option("--scale", o.scale,
                 "Instead: time and memory against length in the stream protocol, such as 1k..1M")
      ->type_name("RANGE");
  app.add_flag("--serve", o.serve,
               "Instead: a server under clients that ask by HTTP at once, each with a prompt of "
               "512, then 4096 tokens: time to the first token, tokens a second, memory");
  app.add_option("--streams", o.streams, "With --serve: numbers of clients")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("1,4,16")
      ->type_name("LIST");
  app.add_option("--limit", o.limit, "With --scale: a method that took this long reads no further")
      ->type_name("SECONDS");
  app.add_option("--target", o.target,
                 "native: all that this processor has; amx, avx512, avx2: no more than that")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--plot", o.plot, "With --scale: draw it, a .svg, .png or .pdf file")
      ->type_name("FILE");
}

}  // namespace

void add_bench(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "bench", "Measure how fast a model runs with each method, against the machine's limits");
  Parameters model;
  o.model.describe(model);
  add_parameters(*app, model);
  add_measurements(*app, o);
  o.cache.add_to(*app, false);
  o.output.add_to(*app);
  app->footer(
      "Example:\n  ballast bench --shape default --prompt 512,4096 --methods "
      "'exact;balancekv:rate=0.25' --threads 2");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
