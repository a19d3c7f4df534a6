// Common parts of experiments: flags, the log for interrupted runs, the output.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_options.h"
#include "eval/data/samples.h"
#include "eval/results/result_log.h"
#include "report/result.h"

namespace ballast::cli {

/// --json, --csv, --markdown, --wide, --plot, -q: the outputs of a result.
class ResultOutput {
 public:
  void add_to(CLI::App& app);
  /// Call it before long work, so that unwritable files fail at once.
  void open();
  /// The log of findings, FILE.progress with --json=FILE. `identity`: everything that determines
  /// the findings.
  ResultLog log(const Json& identity);
  /// Prints, writes and draws; sets the result's command.
  void write(Result result, ResultLog& log);
  /// Prints a line on standard error, except with -q.
  void note(std::string_view text) const;
  bool quiet() const { return quiet_; }

 private:
  JsonOption json_;
  FormatOption csv_{"--csv", "CSV"};
  FormatOption markdown_{"--markdown", "Markdown"};
  bool wide_ = false;
  std::string plot_;
  bool quiet_ = false;
};

/// Everything in fewer bits, at the bytes that takes: without these rows, methods that evict look
/// better than they are.
inline constexpr std::string_view kStorageOnly =
    "exact:type=int8;exact:type=int4;exact:type=q4/q2;exact:type=q2";

/// "exact", kStorageOnly and `methods`: what experiments compare by default.
std::string with_storage_only(std::string_view methods);

/// --methods with --cache, --rates or --budgets, --seeds, --cache-type.
struct VariantFlags {
  std::vector<std::string> methods;
  Memory memory;
  std::size_t seeds = 1;
  std::uint64_t seed = 0;
  std::string key_type;
  std::string value_type;
  std::vector<std::string> types;  ///< empty: f16

  /// `methods`, `sizes`: the defaults.
  void add_to(CLI::App& app, const std::string& methods, const Memory& sizes);
  std::vector<Variant> parse();
  /// Whether one table compares several types of storage.
  bool many_types() const { return types.size() > 1; }

 private:
  std::string standard_methods_;
  Memory standard_sizes_;
};

/// All flags of an experiment that asks a model questions.
struct SampleFlags {
  std::string model;
  VariantFlags variants;
  std::string protocol = "prefill";
  std::string positions = "absolute";
  AskOptions ask;
  std::size_t limit = 0;
  bool show_kept = false;
  ResultOutput output;

  void add_to(CLI::App& app, const std::string& methods, const Memory& sizes);
};

/// The description of an experiment on samples.
struct SampleExperiment {
  std::string name;                 ///< "lines"
  std::string title;                ///< of the result
  std::vector<ResultColumn> group;  ///< columns of Sample::group
  std::string score_title = "score";
  Unit score_unit = Unit::percent;
  bool overall = false;            ///< see score_rows
  bool loss = true;                ///< whether the table shows what is lost against exact
  Json settings = Json::object();  ///< beside those of the flags
  std::size_t shown = 0;           ///< the sample that --show-kept shows
  std::vector<std::string> notes;
};

/// The model and options of an experiment on samples, from the flags to the result.
class SampleRun {
 public:
  /// Loads the model. Throws Error on flags that make no sense.
  explicit SampleRun(SampleFlags& flags);

  LoadedModel& model() { return model_; }
  const std::vector<Variant>& variants() const { return variants_; }
  std::vector<Variant>& variants() { return variants_; }

  /// Throws Error that names --lengths if the model has no positions for one and --longest does
  /// not say that its middle may be left out.
  void check_lengths(std::span<const std::size_t> lengths) const;
  /// Runs all samples (the first --limit of each group) and makes the table. `samples` and
  /// `answers` return those that ran, if not null.
  Result run(const SampleExperiment& experiment, std::vector<Sample> samples, const Scorer& scorer);
  const std::vector<Sample>& samples() const { return samples_; }
  const std::vector<std::vector<Answered>>& answers() const { return answers_; }
  /// Prints, writes and draws.
  void finish(Result result) { flags_.output.write(std::move(result), log_); }

 private:
  /// See Result::kept.
  Json kept_of(std::size_t shown, const Scorer& scorer) const;

  SampleFlags& flags_;
  std::vector<Variant> variants_;
  LoadedModel model_;
  ResultLog log_;
  std::vector<Sample> samples_;
  std::vector<std::vector<Answered>> answers_;
};

/// What identifies a model: its path and a number of its weights, for it may be trained further.
Json model_identity(const Model& model);
/// The identity of a text.
std::string fingerprint(std::span<const Token> tokens);

}  // namespace ballast::cli
