// Samples of RULER's thirteen tasks (Hsieh et al. 2024) over any text, and of tasks of our own in
// the same layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "experiments/tasks/needles.h"
#include "report/json.h"

namespace ballast {

/// RULER's names of its tasks, in its order: niah_single_1 to qa_2.
std::span<const std::string_view> ruler_task_names();
/// These and ours: arithmetic_3 to code_result, for which any haystack does.
std::span<const std::string_view> made_task_names();

/// Records of RULER's files, each a question on the same text: index (`seed`), input (the prompt;
/// its last line asks), answer_prefix (the beginning of the answer), outputs (references) and
/// length. `length` counts prompt, prefix and the longest answer, without a chat template, and is
/// at most `tokens`. There are `questions`, at least one, or what the task has to ask about one
/// text: one in most, four in niah_multikey_1. Equal arguments give equal records. Throws TooShort
/// if `tokens` do not hold the task, Error if the haystack has too few words for it or if no task
/// has this name.
std::vector<Json> ruler_records(const Haystack& haystack, std::string_view task, std::size_t tokens,
                                std::size_t questions, std::uint64_t seed);

}  // namespace ballast
