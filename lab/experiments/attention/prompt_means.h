// One result out of the results of several texts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pages/result.h"

namespace ballast {

/// Results of the same command on different texts: row r of each is of the same setting. Numbers
/// become means over the texts (of arrays, element by element); of each column in `keys`,
/// `KEY_error` is the standard error of the mean over texts, `KEY_low` and `KEY_high` its 95%
/// interval by Student's t. `prompts` counts the texts. Everything else, plots among it, is that
/// of the first. Throws Error if there are none or they differ in their rows.
Result mean_over_prompts(std::vector<Result> results, std::span<const std::string> keys);

}  // namespace ballast
