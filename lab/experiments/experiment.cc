#include "experiments/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/fail.h"
#include "base/nearest.h"

namespace ballast {

// Adding an experiment: its name in both lists, and a file of its own.
Experiment attention_experiment(), ablation_experiment(), memory_experiment(), norms_experiment(),
    clusters_experiment(), heavy_experiment(), submodular_experiment(), neurons_experiment(),
    needle_experiment(), lines_experiment(), records_experiment(), longbench_experiment(),
    light_experiment(), ruler_experiment(), summarise_experiment(), captions_experiment(),
    choice_experiment(), quantised_experiment(), diversity_experiment(), answers_experiment(),
    stream_experiment(), efficiency_experiment(), throughput_experiment(), paper_experiment();

std::span<const Experiment> experiments() {
  static const std::vector<Experiment> all = {
      attention_experiment(),  ablation_experiment(),   memory_experiment(),
      norms_experiment(),      clusters_experiment(),   heavy_experiment(),
      submodular_experiment(), neurons_experiment(),    needle_experiment(),
      lines_experiment(),      records_experiment(),    longbench_experiment(),
      light_experiment(),      ruler_experiment(),      summarise_experiment(),
      captions_experiment(),   choice_experiment(),     quantised_experiment(),
      diversity_experiment(),  answers_experiment(),    stream_experiment(),
      efficiency_experiment(), throughput_experiment(), paper_experiment(),
  };
  return all;
}

const Experiment& find_experiment(std::string_view name) {
  std::vector<std::string> known;
  for (const Experiment& e : experiments()) {
    if (e.name == name) return e;
    known.push_back(e.name);
  }
  fail("unknown experiment '{}'{}; known: {}", name, did_you_mean(name, known),
       fmt::join(known, ", "));
}

ResultLog& Work::log(const Json& identity, bool divides) {
  require(divides || options_.ranks == nullptr, ErrorCode::unsupported,
          "{} has no samples that mpirun could divide: run it without mpirun", label_);
  if (!options_.log.empty()) log_ = ResultLog(options_.log, identity);
  if (log_.found() > 0) {
    note(fmt::format("going on from {}, which has {} findings", options_.log.string(),
                     log_.found()));
  }
  if (!options_.quiet && !options_.advance) progress_.emplace(label_);
  return log_;
}

void Work::update(double done) {
  if (options_.advance) options_.advance(std::clamp(done, 0.0, 1.0));
  if (progress_) progress_->update(done);
}

namespace {

/// Adds a note that explains each score's error: Wilson's interval or a standard error. Scores that
/// every seed repeats have no error.
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

Result run_experiment(const Experiment::Call& call, Work& work) {
  Result result = call.measure(work);
  work.stop();
  result.command = work.options().command;
  // Each row names its command, because rows of several files may be merged.
  for (Json& row : result.rows) row["command"] = result.command;
  explain_errors(result);
  return result;
}

Result run_experiment(Experiment::Call& call, const Json& values, Work& work) {
  call.parameters.set(values);
  call.parameters.check();
  return run_experiment(call, work);
}

}  // namespace ballast
