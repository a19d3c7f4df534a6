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
  /// Whether the claim is that the two are level instead: by no more than 1.96 standard errors of
  /// the difference apart, as independent numbers.
  bool level = false;
  /// Numbers that differ by less than this fraction of the larger one are level, too: for times.
  double tolerance = 0;
  bool least_first = false;  ///< whether ranking() begins with the least, as where `lower` is set
};

struct ClaimVerdict {
  std::size_t pairs = 0;  ///< settings in which both were measured
  std::size_t holds = 0;  ///< of these, the claim holds beyond the standard error of the difference
  std::size_t level = 0;  ///< of these, the two differ by no more than that
  double better = std::numeric_limits<double>::quiet_NaN();  ///< means over the pairs
  double worse = std::numeric_limits<double>::quiet_NaN();

  /// "agrees", "level", "disagrees", "agrees in 2 of 4, level in 1", or "not measured".
  std::string text() const;
};

/// Numbers without a standard error (`METRIC_error`) differ whenever they are not equal.
ClaimVerdict judge(const PaperClaim& claim, std::span<const Json> rows);

struct RankedName {
  std::string name;
  double mean = 0;           ///< over its rows with a number
  std::size_t settings = 0;  ///< how many these are
};

/// All names of column `claim.by` by column `claim.metric`, the best first; equal ones as in the
/// rows. Empty where `claim.by` is.
std::vector<RankedName> ranking(const PaperClaim& claim, std::span<const Json> rows);

}  // namespace ballast
