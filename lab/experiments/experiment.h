// An experiment: a function of its parameters that returns a result. The command line, Python and
// `eval paper` call it (lab/README.md).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ballast/engine/ranks.h"
#include "experiments/data/kv_source.h"
#include "experiments/parameters.h"
#include "experiments/result_log.h"
#include "pages/result.h"
#include "report/progress.h"

namespace ballast {

/// What an experiment has beside its parameters: findings of an interrupted run, and a place to say
/// how far it is.
class Work {
 public:
  struct Options {
    std::filesystem::path log = {};  ///< of the findings; empty: none are kept
    std::string command = {};        ///< the command that does the same
    bool quiet = false;              ///< shows no progress
    Advance advance = {};            ///< gets the fraction that is done, from any thread; may throw
    std::function<void(std::string_view)> note = {};  ///< gets lines for people
    /// Processes that make the same calls, among which samples are divided; null: this one alone.
    std::shared_ptr<Ranks> ranks = {};
  };
  /// `label` begins lines of progress: "eval lines".
  Work(std::string label, Options options)
      : label_(std::move(label)), options_(std::move(options)) {}

  /// Call it once, before long work. `identity`: everything that determines the findings. Throws
  /// Error if the file of findings is another command's, and where there are ranks but the
  /// experiment does not divide its work among them.
  ResultLog& log(const Json& identity, bool divides = false);
  /// The fraction that is done, after log(). Safe to call from any thread.
  void update(double done);
  /// Updates of part i of n equal ones.
  Advance part(std::size_t i, std::size_t n) {
    return [this, i, n](double done) {
      update((static_cast<double>(i) + done) / static_cast<double>(n));
    };
  }
  void note(std::string_view text) const {
    if (options_.note) options_.note(text);
  }
  const Options& options() const { return options_; }
  const std::string& label() const { return label_; }
  /// Ends the line of progress.
  void stop() { progress_.reset(); }
  /// Removes the findings. Call it once the result is written.
  void finish() { log_.finish(); }

 private:
  std::string label_;
  Options options_;
  ResultLog log_;
  std::optional<Progress> progress_;
};

struct Experiment {
  /// One call: parameters with their defaults, to be set before measure().
  struct Call {
    Parameters parameters;
    std::function<Result(Work&)> measure;
  };

  std::string name;      ///< "lines"
  std::string title;     ///< what it measures, in a line
  std::string paper;     ///< the tables and figures that it gives; empty: none
  std::string examples;  ///< lines of help: commands, indented by two
  std::function<Call()> call;
};

/// `P`: the parameters, a struct with `void describe(Parameters&)`. `measure` gets a copy of them.
template <typename P>
Experiment experiment(std::string name, std::string title, std::string paper, std::string examples,
                      Result (*measure)(P, Work&)) {
  return {std::move(name), std::move(title), std::move(paper), std::move(examples), [measure] {
            auto given = std::make_shared<P>();
            Experiment::Call out;
            given->describe(out.parameters);
            out.measure = [given, measure](Work& work) { return measure(*given, work); };
            return out;
          }};
}

/// All experiments, in the order in which help shows them.
std::span<const Experiment> experiments();
/// Throws Error that lists the known names if no experiment has this one.
const Experiment& find_experiment(std::string_view name);

/// Measures, names the command in the result and in each row, and notes which error ± means.
Result run_experiment(const Experiment::Call& call, Work& work);
/// The same after the parameters are set, and checked.
Result run_experiment(Experiment::Call& call, const Json& values, Work& work);

}  // namespace ballast
