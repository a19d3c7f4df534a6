// H2O's Algorithm 4: a greedy type (approximate Newton) method for softmax regression (Zhang et al.
// 2023, arXiv:2306.14048, appendix D.17 to D.22).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

/// L(x) = ½‖f(x) − b‖² + Σ exp(Ax) + ½‖diag(w)·Ax‖², f(x) = softmax(Ax). A is n × d.
struct SoftmaxRegression {
  Matrix a;
  std::vector<double> b;  ///< n numbers
  std::vector<double> w;  ///< n numbers

  double loss(const std::vector<double>& x) const;
  /// Lemma D.44 and the gradients of the two penalties.
  std::vector<double> gradient(const std::vector<double>& x) const;
  /// B_diag(x) + w∘w: the diagonal of the matrix between Aᵀ and A in the Hessian; never negative.
  std::vector<double> diagonal(const std::vector<double>& x) const;
};

struct NewtonPath {
  std::vector<std::vector<double>> x;  ///< x_0, x_1, …, the last one first below the tolerance
  std::vector<double> gradient;        ///< norm at each of them
  /// The matrix of the last x has no finite square root: exp(Ax) grew past what float64 holds.
  bool diverged = false;
};

/// Steps x ← x − (Aᵀ D̃ A)⁻¹ g from x = 0. `rows`: how many of A a step draws with replacement, by
/// their share of D·‖a‖², weighted so that the expectation is Aᵀ D A; 0: all of them. Some tens a
/// dimension are needed: with few, a step may overshoot. (The paper prints the step with a plus.)
/// Ends at a gradient norm of `tolerance`, after `most` steps, or where it diverges.
NewtonPath newton(const SoftmaxRegression& problem, std::size_t rows, double tolerance,
                  std::size_t most, std::uint64_t seed);

}  // namespace ballast
