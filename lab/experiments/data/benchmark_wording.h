// The benchmarks' own prompts. They define the tasks: other wording does not give comparable
// results.
#pragma once

#include <span>
#include <string_view>

namespace ballast {

// ---- LongBench (Bai et al. 2023), its English tasks ---------------------------------------------

enum class LongBenchScore : unsigned char {
  qa_f1,
  rouge_l,
  classification,
  retrieval,
  count,
  code
};

struct LongBenchTask {
  std::string_view name;
  std::string_view title;     ///< as the papers' tables have it
  std::string_view category;  ///< of LongBench's six
  LongBenchScore score;
  std::size_t max_tokens;   ///< of an answer
  bool chat;                ///< whether the prompt uses the model's chat template
  bool first_line;          ///< only the first line of an answer counts
  bool in_e;                ///< part of LongBench-E
  std::string_view prompt;  ///< with {context} and {input}
};

std::span<const LongBenchTask> longbench_tasks();

// ---- RULER (Hsieh et al. 2024), whose files hold whole prompts, and our tasks in its layout

enum class RulerScore : unsigned char {
  all,     ///< the fraction of the references that the answer holds
  any,     ///< whether it holds one
  number,  ///< whether its last number is the reference
  call     ///< whether its JSON has the reference's name and arguments
};

struct RulerTask {
  std::string_view name;  ///< or the beginning of it
  std::size_t max_tokens;
  RulerScore score;
};

std::span<const RulerTask> ruler_tasks();

}  // namespace ballast
