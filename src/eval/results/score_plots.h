// Plots of tables of scores.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/data/samples.h"
#include "report/result.h"

namespace ballast {

/// More scores of the same answers, into the rows that score_rows() made of them: `key` and
/// `key`_error.
void add_scores(std::vector<Json>& rows, const std::string& key, const std::vector<Sample>& samples,
                const std::vector<Variant>& variants,
                const std::vector<std::vector<Answered>>& answers, const Scorer& scorer,
                bool overall);

/// The scores of a result's rows. With several memories: a plot a group (of the overall row only,
/// where there is one), score against memory, a line a method, what is exact as a level line. With
/// one: bars, a group each.
std::vector<Plot> score_plots(const std::string& title, const std::vector<Json>& rows,
                              const std::vector<ResultColumn>& group, const std::string& score_key,
                              const std::string& score_title);

}  // namespace ballast
