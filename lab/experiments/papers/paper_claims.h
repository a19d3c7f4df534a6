// What a paper says of two methods, held against the rows of a result.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "report/json.h"

namespace ballast {

/// "A is better than B by this column". The two are rows that differ in column `by` alone, or,
/// where `by` is empty, two columns of one row.
struct PaperClaim {
  std::string text;           ///< "BalanceKV below uniform"
  std::string metric;         ///< the column that is compared; not used where `by` is empty
  bool lower = false;         ///< whether the smaller number is the better one
  std::string by = "method";  ///< the column that names the two
  std::string better;         ///< a name at the end of which '*' stands for the best of several
  std::string worse;
  double paper_better = std::numeric_limits<double>::quiet_NaN();  ///< the paper's numbers, if any
  double paper_worse = std::numeric_limits<double>::quiet_NaN();
  /// A number in place of `worse`; not finite: none.
  double bound = std::numeric_limits<double>::quiet_NaN();
  /// Whether the claim is that the two are level instead.
  bool level = false;
  /// Numbers that differ by less than this fraction of the larger one are level, too: for times.
  double tolerance = 0;
  bool least_first = false;  ///< whether ranking() begins with the least, as where `lower` is set
};

/// Settings in which both were measured, by what they show. The error of a difference is that of
/// the samples' differences where rows have `scores` of the same samples, else that of independent
/// numbers.
struct ClaimVerdict {
  std::size_t pairs = 0;  ///< settings with a verdict
  std::size_t holds = 0;  ///< of these, the claim holds by more than 1.96 errors
  std::size_t level = 0;  ///< the two differ by less, and a difference as the paper's would show
  std::size_t undecided = 0;  ///< the two differ by less, and so would the paper's
  std::size_t at_chance = 0;  ///< beside `pairs`: the exact cache answers no better than by chance
  double better = std::numeric_limits<double>::quiet_NaN();  ///< means over the pairs
  double worse = std::numeric_limits<double>::quiet_NaN();

  /// "agrees", "level", "disagrees", "undecided", "agrees in 2 of 4, level in 1", "exact at chance:
  /// needs a larger model", or "not measured".
  std::string text() const;
};

/// `worse` may be "exact", which has one size and is compared with every size of `better`.
/// Rows of the group "all" are means of others and no setting. A difference as the paper's is its
/// own, for scores in the same unit, else as a fraction of the larger number; without numbers of
/// the paper, and for two that are to be level, a tenth of the larger one. The exact cache is at
/// chance where its `score` is not 1.96 errors above the row's `chance`, or a tenth. A number's
/// error is `METRIC_error`, or else its deviation over seeds, `METRIC_sd_seeds`; without one,
/// numbers differ whenever they are not equal.
ClaimVerdict judge(const PaperClaim& claim, std::span<const Json> rows);

struct RankedName {
  std::string name;
  double mean = 0;           ///< over its rows with a number
  std::size_t settings = 0;  ///< how many these are
};

/// All names of column `claim.by` by column `claim.metric`, the best first; equal ones as in the
/// rows. Without the group "all". Empty where `claim.by` is.
std::vector<RankedName> ranking(const PaperClaim& claim, std::span<const Json> rows);

}  // namespace ballast
