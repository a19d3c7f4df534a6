// Heavy hitters among the neurons of the feed-forward blocks (H2O, appendix C.10: Figures 11 to 13
// and Table 12).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "ballast/engine/model.h"
#include "base/running_mean.h"

namespace ballast {

/// Of each layer and neuron: tokens of the text that activate it, as a fraction.
struct NeuronUse {
  std::vector<std::vector<double>> frequency;

  /// Neurons above a frequency, by layer.
  std::vector<std::vector<bool>> above(double frequency) const;
};

/// With ReLU a neuron is active where it is not 0, as in the paper. Other activations are hardly
/// ever 0: there it is active where its magnitude is at least a tenth of its token's largest.
bool is_active(Activation activation, float neuron, float largest);

/// Adds the tokens (rows) in which each neuron (column) is active to `counts`.
void count_active(Activation activation, ConstMatrix neurons, std::span<std::size_t> counts);

/// Reads the first tokens of the text, at most the model's positions, and counts.
NeuronUse count_neurons(const Model& model, std::span<const Token> tokens);

/// Loss in nats of every token but the first with some neurons set to 0 (by layer; empty: none).
RunningMean loss_without(const Model& model, std::span<const Token> tokens,
                         const std::vector<std::vector<bool>>& removed);

/// Neurons in both sets over neurons in either; 1 where both are empty.
double overlap(const std::vector<std::vector<bool>>& a, const std::vector<std::vector<bool>>& b);

}  // namespace ballast
