// What experiments share: their flags, how they go on after an interruption, how they end.
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

/// --json, --plot, -q: where a result goes.
class ResultOutput {
 public:
  void add_to(CLI::App& app);
  /// To be called before long work, so that what cannot be written is found at once.
  void open();
  /// With --json=FILE, what was found before an interruption: FILE.progress. `identity`: all that
  /// decides what is found.
  ResultLog log(const Json& identity);
  /// Prints, writes and draws; sets the result's command.
  void write(Result result, ResultLog& log);
  /// A line for people on standard error, unless they want quiet.
  void note(std::string_view text) const;
  bool quiet() const { return quiet_; }

 private:
  JsonOption json_;
  std::string plot_;
  bool quiet_ = false;
};

/// --methods with --rates, --budgets or --shares, --seeds, --cache-type.
struct VariantFlags {
  std::vector<std::string> methods;
  Memory memory;
  std::size_t seeds = 1;
  std::uint64_t seed = 0;
  std::string key_type;
  std::string value_type;
  std::vector<std::string> types;  ///< empty: f16

  /// `methods`, `rates`: what the paper's table compares, used where none are given.
  void add_to(CLI::App& app, const std::string& methods, const std::vector<double>& rates);
  std::vector<Variant> parse();
  /// Whether one table compares several types of storage.
  bool many_types() const { return types.size() > 1; }

 private:
  std::string standard_methods_;
  std::vector<double> standard_rates_;
};

/// All flags of an experiment that asks a model questions.
struct SampleFlags {
  std::string model;
  VariantFlags variants;
  std::string protocol = "prefill";
  std::string positions = "absolute";
  AskOptions ask;
  std::size_t limit = 0;
  ResultOutput output;

  void add_to(CLI::App& app, const std::string& methods, const std::vector<double>& rates);
};

/// What an experiment of questions is, beside its samples.
struct SampleExperiment {
  std::string name;                 ///< "lines"
  std::string title;                ///< of the result
  std::vector<ResultColumn> group;  ///< columns of Sample::group
  std::string score_title = "score";
  Unit score_unit = Unit::percent;
  bool overall = false;            ///< see score_rows
  Json settings = Json::object();  ///< beside those of the flags
  std::vector<std::string> notes;
};

/// A model and how it is asked, between parsing the flags and writing the result.
class SampleRun {
 public:
  /// Loads the model. Throws Error on flags that make no sense.
  explicit SampleRun(SampleFlags& flags);

  LoadedModel& model() { return model_; }
  const std::vector<Variant>& variants() const { return variants_; }
  std::vector<Variant>& variants() { return variants_; }

  /// Asks all samples (the first --limit of each group), and makes the table. `samples` keeps those
  /// asked, `answers` theirs, when given.
  Result run(const SampleExperiment& experiment, std::vector<Sample> samples, const Scorer& scorer);
  const std::vector<Sample>& samples() const { return samples_; }
  const std::vector<std::vector<Answered>>& answers() const { return answers_; }
  /// Prints, writes and draws.
  void finish(Result result) { flags_.output.write(std::move(result), log_); }

 private:
  SampleFlags& flags_;
  std::vector<Variant> variants_;
  LoadedModel model_;
  ResultLog log_;
  std::vector<Sample> samples_;
  std::vector<std::vector<Answered>> answers_;
};

/// What identifies a model: its path and a number of its weights, for it may be trained further.
Json model_identity(const Model& model);
/// What identifies a text.
std::string fingerprint(std::span<const Token> tokens);

}  // namespace ballast::cli
