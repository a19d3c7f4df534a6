// Multiple choice as in lm-evaluation-harness: each choice continues the question, and the
// likeliest one is the answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/data/samples.h"

namespace ballast {

struct ChoiceOptions {
  std::string task = {};  ///< empty: told by the beginning of the file's name
  std::size_t shots = 5;
  /// Examples are drawn from this file; empty: from the questions' own, the one asked left out.
  std::filesystem::path shots_file = {};
  std::uint64_t seed = 0;  ///< of drawing examples, anew for each question
};

/// "copa", "mathqa", "openbookqa", "piqa", "rte", "winogrande".
std::vector<std::string_view> choice_task_names();

/// The questions of a file in the harness's form, a blank line between examples. Group: task.
/// Fields are those of the data sets as Hugging Face exports them (and AI2's own for OpenBookQA,
/// SuperGLUE's for RTE). In Winogrande the choices stand in the question, so each choice is a
/// sample of its own: see unite_choices. Throws Error on what is malformed, or when there are too
/// few examples.
std::vector<Sample> read_choices(const std::filesystem::path& path, const ChoiceOptions& options);

/// Merges the samples that are choices of one question, and their answers, [sample][variant]. Times
/// and tokens are summed; bytes and entries are maxima.
void unite_choices(std::vector<Sample>& samples, std::vector<std::vector<Answered>>& answers);

/// 1 if the likeliest choice is right (the harness's acc).
double score_choice(const Sample& sample, const Answered& answer);
/// The same with log-likelihoods divided by the characters of the choices (acc_norm).
double score_choice_by_length(const Sample& sample, const Answered& answer);
/// Whether the harness gives acc_norm for this task.
bool has_length_score(std::string_view task);

}  // namespace ballast
