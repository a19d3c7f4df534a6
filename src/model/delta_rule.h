// The gated delta rule (Yang et al. 2024, Gated DeltaNet): a head's state is a matrix that maps
// keys to values. Each token lets it decay, and corrects what it maps the token's key to.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/matrix.h"
#include "model/weights.h"

namespace ballast {

class DeltaRule {
 public:
  DeltaRule(const ModelConfig& config, const LayerWeights& weights)
      : config_(config), weights_(weights) {}

  /// `row`: of a token the queries, keys and values of all heads. Queries and keys get length 1,
  /// queries then 1/sqrt(key dimension).
  void normalise_heads(std::span<float> row) const;
  /// Value head h of consecutive tokens. `mixed`: rows of normalise_heads(). `beta`, `decay`: an
  /// element a value head, as projected. `states`: key dimension × value dimension of each value
  /// head, changed. `gate`: what the normed output is multiplied by, and what becomes of it.
  void run(std::size_t h, ConstMatrix mixed, ConstMatrix beta, ConstMatrix decay,
           std::span<float> states, MutableMatrix gate) const;

 private:
  const ModelConfig& config_;
  const LayerWeights& weights_;
};

}  // namespace ballast
