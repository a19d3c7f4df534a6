// Eigenvalues and eigenvectors of symmetric matrices. The same bits for any number of threads.
#pragma once

#include <cstddef>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

/// Replaces a symmetric matrix, n × n row after row, by its eigenvectors, a row each of length 1,
/// and returns their eigenvalues, falling. Householder's tridiagonal form, then QL with implicit
/// shifts (Golub and Van Loan, Matrix Computations, 8.3). Throws Error if an element is not finite.
std::vector<double> eigenvectors(std::vector<double>& a, std::size_t n);

/// M^(1/2) and M^(-1/2) of a symmetric matrix whose eigenvalues count as at least `floor` times
/// their mean, n × n each.
struct Roots {
  std::vector<double> root, inverse;
};
Roots roots(std::vector<double> m, std::size_t n, double floor);

/// The `count` leading eigenpairs of a positive semidefinite matrix.
struct Leading {
  Matrix vectors;              ///< count × n, rows of length 1
  std::vector<double> values;  ///< falling, not below 0
};

/// Block subspace iteration from random rows, `count` and 64 more, then Rayleigh and Ritz. Three
/// rounds find every direction to well below what a coefficient is rounded by; neighbours of nearly
/// equal eigenvalues stay mixed. `start`: vectors of a similar matrix, from which one round is
/// enough; null: none. Throws Error if an element is not finite.
Leading leading_eigenvectors(ConstMatrix c, std::size_t count, const Matrix* start = nullptr);

}  // namespace ballast
