// Layers that keep a state of fixed size in the place of attention.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/engine/model.h"
#include "model/activations.h"
#include "model/run.h"

namespace ballast {

/// From `normed` to `block`, for all runs of a pass.
class RecurrentLayers {
 public:
  explicit RecurrentLayers(const Model& model) : model_(model), config_(model.config()) {}

  /// `state`: the layer's number among the recurrent ones. Rows before `first` change the state
  /// alone; the pass goes on with those from `first`.
  void run(std::size_t layer, std::size_t state, std::span<const Run> runs, std::size_t first,
           Activations& x);

 private:
  /// A gated short convolution.
  void short_conv(std::size_t layer, std::size_t state, std::span<const Run> runs,
                  std::size_t first, Activations& x);
  /// The gated delta rule behind a convolution.
  void delta_rule(std::size_t layer, std::size_t state, std::span<const Run> runs,
                  std::size_t first, Activations& x);

  const Model& model_;
  const ModelConfig& config_;
  std::vector<float> found_;  ///< a run's state, as it is found
  std::vector<float> mixed_;  ///< of a run: queries, keys and values of the delta rule
};

}  // namespace ballast
