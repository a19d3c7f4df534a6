// Experiments that ask a model questions: their parameters, and their run from samples to a result.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiments/data/loaded_model.h"
#include "experiments/experiment.h"
#include "experiments/variants.h"

namespace ballast {

struct SampleParameters {
  std::string model;
  VariantParameters variants;
  std::string protocol = "prefill";
  std::string positions = "absolute";
  AskOptions ask;
  std::size_t limit = 0;
  bool show_kept = false;

  /// `methods`, `sizes`: the defaults.
  void describe(Parameters& parameters, const std::string& methods, const Memory& sizes);
};

/// The description of an experiment on samples.
struct SampleExperiment {
  std::string name = {};                 ///< "lines"
  std::string title = {};                ///< of the result
  std::vector<ResultColumn> group = {};  ///< columns of Sample::group
  std::string score_title = "score";
  Unit score_unit = Unit::percent;
  bool overall = false;  ///< see score_rows
  bool join = true;      ///< context and question into one prompt, unless the question comes later
  bool loss = true;      ///< whether the table shows what is lost against exact
  Json settings = Json::object();       ///< beside those of the parameters
  const VisionModel* vision = nullptr;  ///< reads the samples' pictures
  std::size_t shown = 0;                ///< the sample that --show-kept shows
  std::string score_note = {};          ///< what the score is
  std::vector<std::string> notes = {};  ///< after that and a line on entries
};

/// The model and options of an experiment on samples, from the parameters to the result.
class SampleRun {
 public:
  /// Loads the model. Throws Error on parameters that make no sense.
  SampleRun(const SampleParameters& given, Work& work);

  LoadedModel& model() { return model_; }
  const std::vector<Variant>& variants() const { return variants_; }

  /// Throws Error that names --lengths if the model has no positions for one and --longest does
  /// not say that its middle may be left out.
  void check_lengths(std::span<const std::size_t> lengths) const;
  /// Runs all samples (the first `limit` of each group), and makes the table and its plots.
  Result run(const SampleExperiment& experiment, std::vector<Sample> samples, const Scorer& scorer);
  /// Those that ran.
  const std::vector<Sample>& samples() const { return samples_; }
  const std::vector<std::vector<Answered>>& answers() const { return answers_; }

 private:
  /// See Result::kept.
  Json kept_of(std::size_t shown, const Scorer& scorer) const;

  SampleParameters given_;
  Work& work_;
  std::vector<Variant> variants_;
  LoadedModel model_;
  std::vector<Sample> samples_;
  std::vector<std::vector<Answered>> answers_;
};

/// What identifies a model: its path and a number of its weights, for it may be trained further.
Json model_identity(const Model& model);
/// The identity of a text.
std::string fingerprint(std::span<const Token> tokens);

}  // namespace ballast
