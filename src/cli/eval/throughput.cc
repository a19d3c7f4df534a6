// ballast eval throughput: tokens a second within a given memory (H2O, tables 3 to 5).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "cli/bench_model.h"
#include "cli/bench_report.h"
#include "cli/eval/experiment.h"
#include "cli/model_options.h"
#include "eval/data/benchmarks.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  BenchModelFlags model;
  VariantFlags variants;
  ThroughputOptions throughput;
  std::string memory;
  std::string data;
  ResultOutput output;
};

/// Tokens of the longest prompt of H2O's file of articles: shorter ones are padded to it.
std::size_t longest_prompt(const std::filesystem::path& model, const std::string& data) {
  const LoadedModel m(model.string());
  std::vector<Sample> samples = read_summaries(data);
  join_prompts(samples);
  std::size_t longest = 0;
  for (const Sample& sample : samples) {
    longest = std::max(longest, m.tokenizer.encode(sample.question).size());
  }
  return longest;
}

Json measure(const Options& o, const Model& model, const Variant& variant, std::size_t prompt,
             ResultLog& log) {
  const std::string key =
      fmt::format("{} {} {} {} {}", prompt, variant.name(), to_string(variant.key_type),
                  to_string(variant.value_type), variant.seed);
  if (const Json* found = log.find(key)) return *found;
  ThroughputOptions options = o.throughput;
  options.prompts = {prompt};
  options.policies = {variant.policy};
  options.cache.key_type = variant.key_type;
  options.cache.value_type = variant.value_type;
  options.cache.seed = variant.seed;
  const std::vector<ThroughputRow> rows = measure_throughput(model, options);
  Json row = to_json(std::span<const ThroughputRow>(rows))[0];
  row["name"] = variant.name();
  row["key_type"] = to_string(variant.key_type);
  row["value_type"] = to_string(variant.value_type);
  log.add(key, row);
  return row;
}

Result describe(const Options& o, std::vector<Json> rows) {
  const auto compare = [&](const char* rate, const char* ratio) {
    double first = 0;
    std::size_t prompt = 0;
    for (Json& row : rows) {
      const double x = row[rate].get<double>();
      if (row["prompt"].get<std::size_t>() != prompt) first = x;
      prompt = row["prompt"].get<std::size_t>();
      row[ratio] = first > 0 ? Json(x / first) : Json();
    }
  };
  compare("tokens_per_second", "ratio");
  compare("decode_tokens_per_second", "decode_ratio");
  Result r;
  r.experiment = "throughput";
  r.title =
      fmt::format("Tokens a second in {}, {} generated a sequence",
                  format_bytes(static_cast<double>(o.throughput.memory[0])), o.throughput.generate);
  bool extrapolated = false, capped = false;
  for (Json& row : rows) {
    extrapolated = extrapolated || row["extrapolated"].get<bool>();
    capped = capped || row["capped"].get<bool>();
    row["limit"] = row["capped"].get<bool>() ? "--batch" : row["batch"] == 0 ? "" : "memory";
  }
  r.settings = {{"model", o.model.name()},
                {"data", o.data},
                {"memory", o.throughput.memory[0]},
                {"generate", o.throughput.generate},
                {"most_batch", o.throughput.most_batch},
                {"read_once", o.throughput.read_once}};
  r.columns = {{"prompt", "prompt", Unit::count},
               {"name", "method"},
               {"key_type", "keys"},
               {"sequence_bytes", "cache", Unit::bytes},
               {"batch", "batch", Unit::count},
               {"limit", "set by"},
               {"prompt_seconds", "prompts", Unit::seconds},
               {"decode_seconds", "decode", Unit::seconds},
               {"decode_tokens_per_second", "decode tokens/s", Unit::number},
               {"tokens_per_second", "tokens/s", Unit::number},
               {"ratio", "ratio", Unit::ratio}};
  r.named_by = {"prompt", "name", "key_type"};
  r.supporting = {"key_type", "limit", "sequence_bytes", "prompt_seconds"};
  r.gap_key = "prompt";
  r.rows = std::move(rows);
  r.notes = {
      "The memory is for weights, caches and scratch; batch: the most sequences that fit "
      "(0: none), read one after another, continued together",
      "tokens/s: generated / (prompts + decode); ratio: against the first method"};
  if (extrapolated) {
    r.notes.push_back(
        "Prompts are extrapolated: one was read, and its time counts for each of the batch");
  }
  if (capped) r.notes.push_back("Where --batch sets the batch, more sequences would fit");
  return r;
}

void run(Options& o) {
  require(o.variants.memory.caches.empty(),
          "eval throughput: --cache depends on the text; give --rates or --budgets");
  const std::vector<Variant> variants = o.variants.parse();
  o.throughput.memory = {parse_amount(o.memory, "--memory")};
  o.output.open();
  const BenchModel file(o.model);
  const Model model(file.path());
  if (!o.data.empty()) {
    require(o.model.shape.empty(), "eval throughput: --data needs a model with a tokenizer, -m");
    o.throughput.prompts = {longest_prompt(file.path(), o.data)};
  }
  ResultLog log =
      o.output.log({{"experiment", "throughput"},
                    {"model", o.model.shape.empty() ? model_identity(model) : Json(o.model.shape)},
                    {"memory", o.throughput.memory[0]},
                    {"prompts", o.throughput.prompts},
                    {"generate", o.throughput.generate},
                    {"most_batch", o.throughput.most_batch},
                    {"read_once", o.throughput.read_once}});
  std::vector<Json> rows;
  {
    Progress progress("throughput");
    const auto total = static_cast<double>(variants.size() * o.throughput.prompts.size());
    for (std::size_t prompt : o.throughput.prompts) {
      for (const Variant& variant : variants) {
        if (!o.output.quiet()) progress.update(static_cast<double>(rows.size()) / total);
        rows.push_back(measure(o, model, variant, prompt, log));
      }
    }
  }
  o.output.write(describe(o, std::move(rows)), log);
}

}  // namespace

void add_eval_throughput(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "throughput", "Tokens a second in a given memory with each method (H2O, Tables 3 to 5)");
  o.model.add_to(*app);
  o.variants.add_to(*app, "exact;h2o:rate=0.2;balancekv:rate=0.25", {.rates = {0.25}});
  app->add_option("--memory", o.memory, "For weights, caches and scratch, such as 256M or 4G")
      ->required()
      ->type_name("SIZE");
  app->add_option("--prompt", o.throughput.prompts, "Lengths of prompts, in tokens")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("512,2048")
      ->type_name("LIST");
  app->add_option("--data", o.data,
                  "Instead of --prompt: a file of articles as H2O ships them, prompts as long as "
                  "its longest (H2O, Table 4)")
      ->type_name("FILE");
  app->add_option("--generate", o.throughput.generate, "Tokens made after each prompt")
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--batch", o.throughput.most_batch, "Sequences at most")
      ->capture_default_str()
      ->type_name("N");
  app->add_flag(
      "--read-once", o.throughput.read_once,
      "Read one prompt and count its time for each of the batch: quick, but extrapolated");
  o.output.add_to(*app);
  app->footer("Example:\n  ballast eval throughput --shape default --memory 256M --generate 128");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
