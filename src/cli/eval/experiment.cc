#include "cli/eval/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "ballast/engine/context_file.h"
#include "base/fail.h"
#include "report/progress.h"
#include "report/terminal.h"

namespace ballast::cli {

void ResultOutput::add_to(CLI::App& app) {
  json_.add_to(app);
  csv_.add_to(app);
  markdown_.add_to(app);
  app.add_flag("--wide", wide_, "Show every column, however long the lines are");
  app.add_option("--plot", plot_, "Draw the result: a .svg, .png or .pdf file")->type_name("FILE");
  app.add_flag("-q,--quiet", quiet_, "Show no progress");
}

void ResultOutput::open() {
  if (!plot_.empty()) {
    check_plot(plot_);
    OutputFile{plot_};  // fails now rather than at the end if unwritable
  }
  require(json_.text() + csv_.text() + markdown_.text() >= 2,
          "standard output takes one of --json, --csv and --markdown; write --json=FILE");
  for (FormatOption* format : {static_cast<FormatOption*>(&json_), &csv_, &markdown_}) {
    format->open();
  }
}

namespace {

/// What stands behind the scores: Wilson's interval, a standard error, or nothing where every seed
/// gives the same.
void explain_errors(Result& result) {
  bool interval = false, standard_error = false, loss = false;
  std::vector<std::string> fixed;
  bool one_seed = false;
  for (const ResultColumn& column : result.columns) {
    const bool of_questions = column.error_key == column.key + "_error";
    // Beside the value, or in a column of its own.
    const bool own = column.key.find("sd_seeds") != std::string::npos;
    const std::string error_key = own ? column.key : column.error_key;
    const bool of_seeds = error_key.find("seeds") != std::string::npos;
    std::map<std::string, bool> varies;
    for (const Json& row : result.rows) {
      const bool has_interval = row.contains(column.key + "_low");
      (column.key == "loss" ? loss : interval) |= has_interval;
      if (error_key.empty() || !row.contains(error_key)) continue;
      const Json& error = row[error_key];
      const bool zero = error.is_null() || error == 0.0;
      standard_error |= of_questions && !has_interval && !zero;
      if (of_seeds && row.contains("method")) varies[row["method"].dump()] |= !zero;
    }
    const auto seeds = result.settings.find("seeds");
    if (!of_seeds || seeds == result.settings.end()) continue;
    if (*seeds == 1) {
      one_seed = true;
      for (Json& row : result.rows) {
        if (row.contains(error_key)) row[error_key] = nullptr;
      }
      continue;
    }
    for (Json& row : result.rows) {
      if (!row.contains("method") || varies[row["method"].dump()]) continue;
      if (own) row[error_key] = nullptr;
      const std::string name = format_cell(row, {"method", ""});
      if (std::ranges::find(fixed, name) == fixed.end()) fixed.push_back(name);
    }
  }
  if (interval) result.notes.push_back("(a–b)     Wilson's 95% interval over questions");
  if (loss) {
    result.notes.push_back(
        "loss      what the exact cache scores more on the same questions, with the 95% interval "
        "of the paired difference (Tango's where scores are 0 or 1)");
  }
  if (standard_error) result.notes.push_back("±         the standard error over questions");
  if (one_seed) result.notes.push_back("no ±      one seed shows no spread; --seeds 10 does");
  if (!fixed.empty()) {
    result.notes.push_back(
        fmt::format("no ±      seeds cannot differ: {}", fmt::join(fixed, ", ")));
  }
}

}  // namespace

ResultLog ResultOutput::log(const Json& identity) {
  if (!json_.wanted() || !json_.text()) return {};
  ResultLog log(json_.file() + ".progress", identity);
  if (log.found() > 0) {
    note(
        fmt::format("going on from {}.progress, which has {} findings", json_.file(), log.found()));
  }
  return log;
}

void ResultOutput::write(Result result, ResultLog& log) {
  result.command = command_line();
  // Each row names its command, because rows of several files may be merged.
  for (Json& row : result.rows) row["command"] = result.command;
  explain_errors(result);
  if (json_.text() && csv_.text() && markdown_.text()) {
    print(result.to_text(wide_ ? 0 : terminal_width()));
  }
  json_.write(result.to_json());
  csv_.write(result.to_csv());
  markdown_.write(result.to_markdown());
  if (!plot_.empty()) {
    for (const auto& path : write_plots(result.plots, plot_)) name_written(path.string());
  }
  log.finish();
}

void ResultOutput::note(std::string_view text) const {
  if (!quiet_) tell(fmt::format("note: {}", text));
}

std::string with_storage_only(std::string_view methods) {
  return fmt::format("exact;{};{}", kStorageOnly, methods);
}

void VariantFlags::add_to(CLI::App& app, const std::string& standard_methods, const Memory& sizes) {
  standard_methods_ = standard_methods;
  standard_sizes_ = sizes;
  auto list = [&](const char* name, auto& value, const std::string& help) {
    app.add_option(name, value, help)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("LIST")
        ->group("Methods");
  };
  app.add_option(
         "--methods", methods,
         "Method strings, separated by ',' or ';' or given repeatedly [" + standard_methods + "]")
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group("Methods");
  const auto standard = [](const auto& values) {
    return values.empty() ? "" : fmt::format(" [{}]", fmt::join(values, ","));
  };
  list("--cache,--shares", memory.caches,
       "Memory of the whole cache: 1/8, 0.125 or 12% of the exact bf16 cache of the tokens read, "
       "256M, 40K/token; each method keeps as much as fits" +
           standard(sizes.caches));
  list("--rates", memory.rates,
       "Entries kept instead, as fractions of those read" + standard(sizes.rates));
  list("--budgets", memory.budgets, "Entries kept instead, as numbers" + standard(sizes.budgets));
  auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    app.add_option(name, value, help)->capture_default_str()->type_name(type)->group("Methods");
  };
  add("--seeds", seeds, "Runs of each method, with seeds counted up from --seed", "N");
  add("--seed", seed, "First seed", "N");
  list("--cache-types,--cache-type", types,
       "Storage of keys and values: f32, f16, bf16, int8, int4, q4, q3, q2; several are compared "
       "[bf16]");
  add("--key-type", key_type, "Storage of keys, if another", "TYPE");
  add("--value-type", value_type, "Storage of values, if another", "TYPE");
}

std::vector<Variant> VariantFlags::parse() {
  if (methods.empty()) methods = {standard_methods_};
  const std::vector<std::string> names = split_methods(methods);
  const bool own = std::ranges::any_of(
      names, [](const std::string& name) { return Policy::parse(name).has_memory(); });
  if (memory.empty() && !own) memory = standard_sizes_;
  if (types.empty()) types = {"bf16"};
  require(types.size() == 1 || (key_type.empty() && value_type.empty()),
          "--key-type and --value-type need a single --cache-type");
  std::vector<Variant> all;
  for (const std::string& type : types) {
    const auto made = make_variants(names, memory, seeds, seed,
                                    parse_storage_type(key_type.empty() ? type : key_type),
                                    parse_storage_type(value_type.empty() ? type : value_type));
    // A type in the method string goes before these.
    std::ranges::copy_if(made, std::back_inserter(all), [&](const Variant& variant) {
      return std::ranges::none_of(all, [&](const Variant& a) {
        return a.same_types(variant) && a.name() == variant.name() && a.seed == variant.seed;
      });
    });
  }
  return all;
}

void SampleFlags::add_to(CLI::App& app, const std::string& methods, const Memory& sizes) {
  add_model_option(app, model);
  variants.add_to(app, methods, sizes);
  app.add_option("--protocol", protocol,
                 "prefill: summarise once, when the prompt has been read; stream: as tokens come")
      ->capture_default_str()
      ->type_name("NAME")
      ->group("Methods");
  app.add_option("--positions", positions, "absolute or rolling")
      ->capture_default_str()
      ->type_name("NAME")
      ->group("Methods");
  app.add_flag("--question-later", ask.question_later,
               "Summarise the context before the question is read");
  app.add_flag("--raw", ask.raw, "Use no chat template");
  app.add_option("--longest", ask.longest,
                 "Leave out the middle of prompts that exceed this with their answers; the model's "
                 "positions if not given")
      ->type_name("N");
  app.add_option("--limit", limit, "Ask the first N samples of each group only")->type_name("N");
  app.add_flag("--show-kept", show_kept,
               "In JSON: the text of one question and what each method kept of it, for ballast "
               "report");
  output.add_to(app);
}

Json model_identity(const Model& model) {
  return {{"path", model.file().path().string()},
          {"fingerprint", fmt::format("{:016x}", fingerprint(model))}};
}

std::string fingerprint(std::span<const Token> tokens) {
  const auto* bytes = reinterpret_cast<const Bytef*>(tokens.data());
  return fmt::format("{:08x}", crc32_z(0, bytes, tokens.size_bytes()));
}

SampleRun::SampleRun(SampleFlags& flags)
    : flags_(flags), variants_(flags.variants.parse()), model_(flags.model) {
  flags_.ask.protocol = parse_protocol(flags.protocol);
  flags_.ask.positions = parse_positions(flags.positions);
  flags_.output.open();
}

void SampleRun::check_lengths(std::span<const std::size_t> lengths) const {
  if (flags_.ask.longest != 0 || flags_.ask.positions == Positions::rolling) return;
  const std::size_t positions = model_.model.config().max_positions;
  for (const std::size_t length : lengths) {
    require(length <= positions,
            "--lengths {0}: the model has {1} positions; give at most {1}, or --longest {1} to "
            "leave out the middle of longer prompts",
            length, positions);
  }
}

Json SampleRun::kept_of(std::size_t shown, const Scorer& scorer) const {
  const Sample& sample = samples_[shown];
  const CacheShape shape = model_.model.cache_shape();
  Json out = {{"question", sample.question}, {"expected", sample.expected},
              {"layers", shape.layers},      {"kv_heads", shape.kv_heads},
              {"pieces", Json::array()},     {"methods", Json::array()}};
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    const Answered& answer = answers_[shown][v];
    if (variants_[v].seed != variants_[0].seed) continue;
    if (!answer.pieces.empty()) out["pieces"] = answer.pieces;
    Json& method = out["methods"].emplace_back();
    method["name"] = variants_[v].name();
    if (!answer.failure.empty()) {
      method["failure"] = answer.failure;
      if (!answer.fits) method["fits"] = false;
      continue;
    }
    method.update({{"answer", answer.text},
                   {"score", scorer(sample, answer)},
                   {"entries", answer.entries},
                   {"kept", answer.kept}});
  }
  return out;
}

Result SampleRun::run(const SampleExperiment& experiment, std::vector<Sample> samples,
                      const Scorer& scorer) {
  if (flags_.limit > 0) {
    std::map<std::string, std::size_t> seen;
    std::erase_if(samples, [&](const Sample& s) { return ++seen[s.group.dump()] > flags_.limit; });
  }
  require(!samples.empty(), "eval {}: no samples", experiment.name);
  samples_ = std::move(samples);
  const std::size_t shown = std::min(experiment.shown, samples_.size() - 1);
  if (flags_.show_kept) flags_.ask.show = samples_[shown].id;
  Json settings = {{"model", flags_.model},
                   {"protocol", flags_.protocol},
                   {"positions", flags_.positions},
                   {"question_later", flags_.ask.question_later},
                   {"longest", flags_.ask.longest},
                   {"seeds", flags_.variants.seeds},
                   {"first_seed", flags_.variants.seed},
                   {"samples", samples_.size()}};
  settings.update(experiment.settings);
  Json identity = {{"experiment", experiment.name},
                   {"model_file", model_identity(model_.model)},
                   {"samples_fingerprint", fingerprint(samples_)},
                   {"raw", flags_.ask.raw},
                   {"show", flags_.ask.show}};
  identity.update(settings);
  log_ = flags_.output.log(identity);

  Result result;
  result.experiment = experiment.name;
  result.title = experiment.title;
  result.settings = settings;
  {
    Progress progress("eval " + experiment.name);
    PromptRunner runner(model_.engine, model_.tokenizer, flags_.ask);
    answers_ = ask_all(runner, samples_, variants_, log_, [&](double done) {
      if (!flags_.output.quiet()) progress.update(done);
    });
  }
  const bool loss =
      experiment.loss && variants_.size() > 1 && std::ranges::any_of(variants_, is_baseline);
  result.columns = score_columns(experiment.group, flags_.variants.memory, experiment.score_title,
                                 experiment.score_unit, loss);
  if (flags_.variants.many_types()) {
    const auto method = std::ranges::find(result.columns, "method", &ResultColumn::key);
    result.columns.insert(method + 1, {"cache_type", "storage", Unit::text, ""});
  }
  for (const ResultColumn& column : result.columns) {
    if (column.key == "score") break;
    result.named_by.push_back(column.key);
  }
  result.supporting = {"seconds_per_token", "compress_seconds", "attention_error", "ratio",
                       "samples",           "entries",          "cache_bytes",     "loss"};
  if (!experiment.group.empty()) result.gap_key = experiment.group[0].key;
  result.rows = score_rows(samples_, variants_, answers_, scorer, experiment.overall);
  result.notes = experiment.notes;
  if (flags_.show_kept) result.kept = kept_of(shown, scorer);
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    std::size_t failures = 0, unfit = 0;
    std::string why, why_unfit;
    for (const std::vector<Answered>& of_sample : answers_) {
      const Answered& answer = of_sample[v];
      if (answer.failure.empty()) continue;
      ++(answer.fits ? failures : unfit);
      (answer.fits ? why : why_unfit) = answer.failure;
    }
    if (unfit > 0) {
      result.notes.push_back(
          fmt::format("–         {} does not fit in {} of {} samples, which count as wrong where "
                      "others of the row fit: {}",
                      variants_[v].name(), unfit, answers_.size(), why_unfit));
    }
    if (failures == 0) continue;
    result.notes.push_back(fmt::format("{}: no value for {} of {} samples, counted as wrong: {}",
                                       variants_[v].name(), failures, answers_.size(), why));
  }
  const auto cut = static_cast<std::size_t>(std::ranges::count_if(
      answers_, [](const std::vector<Answered>& a) { return !a.empty() && a[0].cut; }));
  if (cut > 0) {
    result.notes.push_back(fmt::format(
        "{} of {} prompts were longer than fits; their middle was left out", cut, samples_.size()));
  }
  return result;
}

}  // namespace ballast::cli
