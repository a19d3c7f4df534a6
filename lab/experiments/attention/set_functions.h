// H2O's submodular framework (Zhang et al. 2023, arXiv:2306.14048, section 4 and appendix D) on
// small ground sets, where every subset can be tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

/// A function of the subsets of `ground` elements, at most 20: value[mask], bit i for element i.
struct SetFunction {
  std::size_t ground = 0;
  std::vector<double> value;  ///< of 2^ground subsets

  static SetFunction of(std::size_t ground, const std::function<double(std::uint32_t)>& value);
};

/// Algorithm 3: the element that adds most, `keep` times. Of equal ones the first.
std::uint32_t greedy_set(const SetFunction& f, std::size_t keep);
/// A subset of `keep` elements with the largest value, of all of them.
std::uint32_t best_set(const SetFunction& f, std::size_t keep);

/// How nearly a function is submodular, over all subsets.
struct Diminishing {
  /// Share of the (X, x, y) with f(X+x) - f(X) >= f(X+x+y) - f(X+y), up to rounding.
  double holds = 1;
  /// The least submodularity ratio of two elements: what they add alone over what they add
  /// together, where that is over 1% of the largest value. At least 1 for a submodular function.
  double ratio = 1;
  bool monotone = true;
};
Diminishing diminishing_returns(const SetFunction& f);

/// Attention of some queries to a ground set of tokens: logits, queries × tokens, -inf where a
/// query does not see a token.
struct GroundAttention {
  Matrix logits;
  Matrix values;  ///< of the tokens
};

/// Algorithm 2's score with h(z) = log(1 + z): of the attention that the subset gets, summed over
/// queries and tokens, by the softmax over the whole ground set.
SetFunction score_function(const GroundAttention& attention);
/// The same function of each query alone, summed over queries: coverage.
SetFunction coverage_function(const GroundAttention& attention);
/// Σ over queries of ‖z‖² - ‖z(S) - z‖², z(S) being attention over the subset alone, and 0 for the
/// empty one: what keeping the subset saves of the error of dropping everything.
SetFunction output_function(const GroundAttention& attention);

/// Algorithm 2: token i comes with query i, whose softmax over the set adds to the sums of its
/// tokens; then the token with the least sum leaves. `attention` has a query for each token.
std::uint32_t h2o_set(const GroundAttention& attention, std::size_t keep);

}  // namespace ballast
