// Plots of tables of scores.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/data/samples.h"
#include "pages/result.h"

namespace ballast {

/// Adds another score of the same answers to the rows of score_rows(): `key` and `key`_error.
void add_scores(std::vector<Json>& rows, const std::string& key, const std::vector<Sample>& samples,
                const std::vector<Variant>& variants,
                const std::vector<std::vector<Answered>>& answers, const Scorer& scorer,
                bool overall);

/// Plots of the scores. With several memory sizes: one plot a group (only of the overall group if
/// there is one), score over memory, one line a method, exact as a horizontal line. With one size:
/// one group of bars a group.
std::vector<Plot> score_plots(const std::string& title, const std::vector<Json>& rows,
                              const std::vector<ResultColumn>& group, const std::string& score_key,
                              const std::string& score_title);

}  // namespace ballast
