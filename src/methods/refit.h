// Values of kept entries, fitted to what all entries answer.
#pragma once

#include <span>

#include "ballast/attention.h"
#include "ballast/summary.h"

namespace ballast {

/// The logit of a query and a key whose inner product is `dot`, ALiBi aside.
float logit_of(float dot, const Logits& logits);

/// Values with which the kept entries answer the observed queries (Needs::refit) most nearly as
/// the whole block does. A query counts by the share of its attention that the block had; a ridge
/// of 0.3 of the mean square pulls towards the values that were. `keys`, `values`: kept × key_dim
/// and × value_dim, as they are read; `positions`: of these. Third step of Attention Matching
/// (arXiv:2602.16284), weighted. Takes float64 sums; |queries|² · kept operations.
Matrix fit_values(const Block& block, ConstMatrix keys, ConstMatrix values,
                  std::span<const Position> positions, const Logits& logits);

}  // namespace ballast
