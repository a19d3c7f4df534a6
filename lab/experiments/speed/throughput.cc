#include "experiments/speed/throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "cache/mean_entries.h"
#include "experiments/data/benchmarks.h"
#include "experiments/speed/bench_model.h"
#include "experiments/speed/speed_report.h"
#include "experiments/speed/timed_batch.h"
#include "experiments/tasks/sample_run.h"
#include "report/units.h"

namespace ballast {
namespace {

/// The default chunk of a prefill in tokens.
constexpr std::size_t kChunk = 256;

/// The largest batch whose weights, scratch and caches fit, also during a prefill.
std::size_t largest_batch(const Model& model, const ThroughputOptions& o,
                          const ThroughputRow& row) {
  const CacheOptions any;
  std::size_t best = 0;
  for (std::size_t batch = 1; batch <= o.most_batch; ++batch) {
    const MemoryEstimate e = model.estimate(any, o.generate, 0, std::max(kChunk, batch));
    const std::size_t fixed =
        e.weights + e.scratch + batch * model.config().vocabulary * sizeof(float);
    const std::size_t caches =
        (batch - 1) * row.sequence_bytes + std::max(row.reading_bytes, row.sequence_bytes);
    if (fixed + caches > row.memory) break;
    best = batch;
  }
  return best;
}

ThroughputRow measure(const Model& model, const ThroughputOptions& o, std::size_t memory,
                      std::size_t prompt, const Policy& policy) {
  ThroughputRow row;
  row.memory = memory;
  row.method = policy.to_string();
  row.prompt = prompt;
  row.generated = o.generate;
  CacheOptions options = o.cache;
  options.policy = policy;
  options.expected_tokens = prompt + o.generate;
  TimedBatch batch(model, options);
  const double reading = batch.read(prompt);
  row.reading_bytes = batch.cache().bytes().total();
  const double compressing = batch.finish_prompt();
  row.entries = mean_entries(batch.cache());
  row.sequence_bytes = batch.cache().bytes().total();
  row.batch = largest_batch(model, o, row);
  if (row.batch == 0) return row;
  row.capped = row.batch == o.most_batch;
  row.prompt_seconds = reading + compressing;
  row.prompts_read = 1;
  if (o.read_once) {
    row.prompt_seconds *= static_cast<double>(row.batch);
    batch.copy_to(row.batch);
  }
  for (; batch.size() < row.batch; ++row.prompts_read) {
    row.prompt_seconds += batch.add_read(prompt);
  }
  row.decode_seconds = batch.generate(o.generate);
  return row;
}

}  // namespace

double ThroughputRow::rate() const {
  const double seconds = prompt_seconds + decode_seconds;
  return seconds > 0 ? static_cast<double>(batch * generated) / seconds : 0;
}

double ThroughputRow::decode_rate() const {
  return decode_seconds > 0 ? static_cast<double>(batch * generated) / decode_seconds : 0;
}

std::vector<ThroughputRow> measure_throughput(const Model& model, const ThroughputOptions& o,
                                              const Advance& advance) {
  require(!o.policies.empty() && !o.prompts.empty() && o.generate > 0 && !o.memory.empty() &&
              o.repeat > 0,
          "nothing to measure: no method, no prompt, no memory, no run or no token to generate");
  const std::size_t most = std::ranges::max(o.memory);
  require(most <= available_memory(), "--memory {:.2f} GiB exceeds the {:.2f} GiB available",
          static_cast<double>(most) / (1 << 30),
          static_cast<double>(available_memory()) / (1 << 30));
  check_lengths(model, o.cache, o.prompts, o.generate);
  std::vector<ThroughputRow> rows;
  const std::size_t policies = o.policies.size();
  const auto total = static_cast<double>(o.memory.size() * o.prompts.size() * o.repeat * policies);
  std::size_t done = 0;
  for (std::size_t memory : o.memory) {
    for (std::size_t prompt : o.prompts) {
      for (std::size_t run = 0; run < o.repeat; ++run) {
        for (std::size_t p = 0; p < policies; ++p) {
          const ThroughputRow row = measure(model, o, memory, prompt, o.policies[p]);
          if (run == 0) {
            rows.push_back(row);
          } else {
            ThroughputRow& best = rows[rows.size() - policies + p];
            best.prompt_seconds = std::min(best.prompt_seconds, row.prompt_seconds);
            best.decode_seconds = std::min(best.decode_seconds, row.decode_seconds);
          }
          if (advance) advance(static_cast<double>(++done) / total);
        }
      }
    }
  }
  return rows;
}

namespace {

struct Throughput {
  BenchModelParameters model;
  VariantParameters variants;
  ThroughputOptions throughput;
  std::string memory;
  std::string data;
  bool offload = false;

  void describe(Parameters& p) {
    model.describe(p);
    variants.describe(p, "exact;h2o:rate=0.2;balancekv:rate=0.25", {.rates = {0.25}});
    p.add("--memory", memory, "For weights, caches and scratch, such as 256M or 4G",
          {.type = "SIZE", .needed = true});
    p.add("--prompt", throughput.prompts, "Lengths of prompts, in tokens");
    p.add("--data", data,
          "Instead of --prompt: a file of articles as H2O ships them, prompts as long as its "
          "longest (H2O, Table 4)",
          {.type = "FILE"});
    p.add("--generate", throughput.generate, "Tokens made after each prompt");
    p.add("--batch", throughput.most_batch, "Sequences at most");
    p.add("--offload", offload,
          "Each method also with its weights read from disk, a layer at a time, which leaves more "
          "memory to caches (as FlexGen does)");
    p.add("--read-once", throughput.read_once,
          "Read one prompt and count its time for each of the batch: quick, but extrapolated");
  }
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

Json measure_variant(const Throughput& o, const Model& model, const Variant& variant,
                     std::size_t prompt, ResultLog& log) {
  const bool from_disk = model.pages() != nullptr;
  const std::string key =
      fmt::format("{} {} {} {} {}{}", prompt, variant.name(), to_string(variant.key_type),
                  to_string(variant.value_type), variant.seed, from_disk ? " disk" : "");
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
  row["weights"] = from_disk ? "disk" : "memory";
  row["key_type"] = to_string(variant.key_type);
  row["value_type"] = to_string(variant.value_type);
  log.add(key, row);
  return row;
}

Result make_result(const Throughput& o, std::vector<Json> rows) {
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
               {"weights", "weights"},
               {"key_type", "keys"},
               {"sequence_bytes", "cache", Unit::bytes},
               {"batch", "batch", Unit::count},
               {"limit", "set by"},
               {"prompt_seconds", "prompts", Unit::seconds},
               {"decode_seconds", "decode", Unit::seconds},
               {"decode_tokens_per_second", "decode tokens/s", Unit::number},
               {"tokens_per_second", "tokens/s", Unit::number},
               {"ratio", "ratio", Unit::ratio}};
  r.named_by = {"prompt", "name", "weights", "key_type"};
  r.supporting = {"key_type", "limit", "weights", "sequence_bytes", "prompt_seconds"};
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

Result measure(Throughput o, Work& work) {
  require(o.variants.memory.caches.empty(),
          "eval throughput: --cache depends on the text; give --rates or --budgets");
  const std::vector<Variant> variants = o.variants.parse();
  o.throughput.memory = {parse_amount(o.memory, "--memory")};
  const BenchModel file(o.model);
  if (!o.model.keep.empty()) work.note("wrote " + o.model.keep);
  const Model model(file.path());
  if (!o.data.empty()) {
    require(o.model.shape.empty(), "eval throughput: --data needs a model with a tokenizer, -m");
    o.throughput.prompts = {longest_prompt(file.path(), o.data)};
  }
  ResultLog& log =
      work.log({{"experiment", "throughput"},
                {"model", o.model.shape.empty() ? model_identity(model) : Json(o.model.shape)},
                {"memory", o.throughput.memory[0]},
                {"prompts", o.throughput.prompts},
                {"generate", o.throughput.generate},
                {"most_batch", o.throughput.most_batch},
                {"read_once", o.throughput.read_once}});
  std::vector<Model> models = {model};
  if (o.offload) models.emplace_back(model).limit_weights(0);
  std::vector<Json> rows;
  const std::size_t total = variants.size() * o.throughput.prompts.size() * models.size();
  for (std::size_t prompt : o.throughput.prompts) {
    for (const Variant& variant : variants) {
      for (const Model& where : models) {
        work.part(rows.size(), total)(0);
        rows.push_back(measure_variant(o, where, variant, prompt, log));
      }
    }
  }
  return make_result(o, std::move(rows));
}

}  // namespace

Experiment throughput_experiment() {
  return experiment(
      "throughput", "Tokens a second in a given memory with each method", "H2O, Tables 3 to 5",
      "  ballast eval throughput --shape default --memory 256M --generate 128", &measure);
}

}  // namespace ballast
