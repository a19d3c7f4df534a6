// ballast eval efficiency: prefill and decode time with each method.
#include <fmt/format.h>

#include "base/fail.h"
#include "experiments/speed/bench_model.h"
#include "experiments/speed/speed_report.h"
#include "experiments/tasks/sample_run.h"

namespace ballast {
namespace {

struct Efficiency {
  BenchModelParameters model;
  VariantParameters variants;
  SpeedOptions speed{.prompts = {16384}, .generate = 1024, .policies = {}, .cache = {}};
  std::size_t repeat = 10;

  void describe(Parameters& p) {
    model.describe(p);
    variants.describe(p, "exact;snapkv;pyramidkv;streaming-llm;balancekv", {.rates = {0.25}});
    p.add("--prompt", speed.prompts[0], "Tokens of the prompt");
    p.add("--generate", speed.generate, "Tokens made after it");
    p.add("--repeat", repeat, "Runs of each; the least time counts");
  }
};

/// One method, measured or found in the log.
Json measure_variant(const Efficiency& o, const Model& model, const Machine& machine,
                     const Variant& variant, ResultLog& log) {
  const std::string key = fmt::format("{} {} {} {}", variant.name(), to_string(variant.key_type),
                                      to_string(variant.value_type), variant.seed);
  if (const Json* found = log.find(key)) return *found;
  SpeedOptions speed = o.speed;
  speed.policies = {variant.policy};
  speed.cache.key_type = variant.key_type;
  speed.cache.value_type = variant.value_type;
  speed.cache.seed = variant.seed;
  std::vector<SpeedRow> rows = measure_speed(model, speed, machine);
  for (std::size_t run = 1; run < o.repeat; ++run) {
    keep_least(rows, measure_speed(model, speed, machine));
  }
  Json row = to_json(std::span<const SpeedRow>(rows), nullptr)[0];
  row["name"] = variant.name();
  row["key_type"] = to_string(variant.key_type);
  row["value_type"] = to_string(variant.value_type);
  row["prefill_seconds"] = rows[0].prompt_seconds + rows[0].compress_seconds;
  log.add(key, row);
  return row;
}

Result make_result(const Efficiency& o, const Machine& machine, std::vector<Json> rows) {
  const double exact = rows.empty() ? 0 : rows[0]["decode_seconds"].get<double>();
  for (Json& row : rows) {
    row["decode_ratio"] = exact / row["decode_seconds"].get<double>();
    row["cache_ratio"] = row["exact_cache_bytes"].get<double>() / row["cache_bytes"].get<double>();
  }
  Result r;
  r.experiment = "efficiency";
  r.title = fmt::format("Time of a prompt of {} tokens and of {} generated after it",
                        o.speed.prompts[0], o.speed.generate);
  r.settings = {{"model", o.model.name()},
                {"prompt", o.speed.prompts[0]},
                {"generate", o.speed.generate},
                {"repeat", o.repeat},
                {"machine", to_json(machine)}};
  r.columns = {{"name", "method"},
               {"key_type", "keys"},
               {"prefill_seconds", "prefill", Unit::seconds},
               {"compress_seconds", "summarise", Unit::seconds},
               {"decode_seconds", "decode", Unit::seconds},
               {"decode_ratio", "speed", Unit::ratio},
               {"cache_bytes", "cache", Unit::bytes},
               {"cache_ratio", "ratio", Unit::ratio},
               {"peak_memory", "peak memory", Unit::bytes}};
  r.named_by = {"name", "key_type"};
  r.supporting = {"key_type", "peak_memory", "compress_seconds"};
  r.rows = std::move(rows);
  r.notes = {fmt::format("The least of {} runs each; {}", o.repeat, to_text(machine)),
             "prefill: to the first token, the summary included; speed: of decoding, against the "
             "first row"};
  return r;
}

Result measure(Efficiency o, Work& work) {
  require(o.repeat > 0, "--repeat must be at least 1");
  require(o.variants.memory.caches.empty(),
          "eval efficiency: --cache depends on the text; give --rates or --budgets");
  const std::vector<Variant> variants = o.variants.parse();
  const BenchModel file(o.model);
  if (!o.model.keep.empty()) work.note("wrote " + o.model.keep);
  const Model model(file.path());
  ResultLog& log =
      work.log({{"experiment", "efficiency"},
                {"model", o.model.shape.empty() ? model_identity(model) : Json(o.model.shape)},
                {"prompt", o.speed.prompts[0]},
                {"generate", o.speed.generate},
                {"repeat", o.repeat}});
  const Machine machine = measure_machine();
  std::vector<Json> rows;
  for (const Variant& variant : variants) {
    work.part(rows.size(), variants.size())(0);
    rows.push_back(measure_variant(o, model, machine, variant, log));
  }
  return make_result(o, machine, std::move(rows));
}

}  // namespace

Experiment efficiency_experiment() {
  return experiment("efficiency", "Time of prompt and generation with each method",
                    "BalanceKV, Table 2",
                    "  ballast eval efficiency --shape default --prompt 4096 --generate 128 "
                    "--repeat 3",
                    &measure);
}

}  // namespace ballast
