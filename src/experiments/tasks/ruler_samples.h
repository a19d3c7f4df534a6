// Samples of RULER's thirteen tasks (Hsieh et al. 2024) over any text, in words of our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "experiments/tasks/needles.h"
#include "report/json.h"

namespace ballast {

/// RULER's names of its tasks, in its order: niah_single_1 to qa_2.
std::span<const std::string_view> ruler_task_names();

/// A record of RULER's files: index (`seed`), input (the prompt; its last line asks), answer_prefix
/// (the beginning of the answer), outputs (references) and length. `length` counts prompt, prefix
/// and the longest answer, without a chat template, and is at most `tokens`. Equal arguments give
/// equal records. Throws TooShort if `tokens` do not hold the task, Error if the haystack has too
/// few words for it or if no task has this name.
Json ruler_record(const Haystack& haystack, std::string_view task, std::size_t tokens,
                  std::uint64_t seed);

}  // namespace ballast
