// Reads the benchmarks' files as samples and scores the answers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/data/samples.h"
#include "experiments/metrics/rouge.h"

namespace ballast {

// Readers throw Error naming file, line and field. Context and question are separate;
// join_prompts() restores the benchmark's single prompt.

/// Joins context and question into one prompt.
void join_prompts(std::vector<Sample>& samples);

struct LongBenchOptions {
  std::vector<std::string> tasks = {};  ///< empty: all tasks present
  bool e = false;          ///< LongBench-E: in a folder, the files whose names end in "_e"
  bool by_length = false;  ///< group by task and length, as LongBench-E reports
};

/// LongBench's files: one, or a folder of <task>.jsonl. Its English tasks only. Groups: task, and
/// length when wanted.
std::vector<Sample> read_longbench(const std::filesystem::path& path,
                                   const LongBenchOptions& options);
/// Adds a row for each of LongBench's six categories of which two tasks or more are there, behind
/// the tasks' rows of the same method and size: the mean of the tasks' scores, entries and bytes.
/// BalanceKV's first version and ClusterGen's Table 2 report these.
void add_category_rows(std::vector<Json>& rows);
/// 0 to 1: the task's metric, the best over the reference answers.
double score_longbench(const Sample& sample, const Answered& answer);

/// RULER's files: one, or a folder of them. The file name determines the task; for
/// "validation.jsonl" and "test.jsonl" the folder name does. Groups: task.
std::vector<Sample> read_ruler(const std::filesystem::path& path);
double score_ruler(const Sample& sample, const Answered& answer);

/// LongEval's line retrieval: a file or a folder of them. Groups: lines. Made-up records (see
/// needles.h) are scored alike.
std::vector<Sample> read_lines(const std::filesystem::path& path);
double score_lines(const Sample& sample, const Answered& answer);

/// Summarisation as H2O ships it (fields article, summary_gt, max_tokens, stop). Groups: data, the
/// file's name.
std::vector<Sample> read_summaries(const std::filesystem::path& path);
/// ROUGE of the package `rouge`, which H2O's script uses, or of `rouge_score` with stemming, which
/// HELM uses.
RougeScores score_summary(const Sample& sample, const Answered& answer, bool helm);

}  // namespace ballast
