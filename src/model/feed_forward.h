// The feed-forward block of a layer: dense, or a mixture of experts.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ballast/engine/model.h"
#include "model/activations.h"
#include "model/weights.h"

namespace ballast {

/// Is given the neurons of each layer's dense block, tokens × dense_width, after their activation,
/// and may change them.
using OnNeurons = std::function<void(std::size_t layer, MutableMatrix neurons)>;

class FeedForward {
 public:
  FeedForward(const Model& model, OnNeurons on_neurons);

  /// From `normed` to `block`, in the rows at work.
  void run(std::size_t layer, Activations& x);

 private:
  void dense(std::size_t layer, Activations& x, MutableMatrix out) const;
  /// Each expert reads the rows of the tokens that chose it.
  void mix_experts(std::size_t layer, Activations& x);
  void choose_experts(std::size_t layer, Activations& x);
  /// Of a mixture, to what its experts say.
  void add_shared_expert(std::size_t layer, Activations& x) const;

  const Model& model_;
  const ModelConfig& config_;
  const OnNeurons on_neurons_;
  struct Choice {
    std::size_t token;
    float weight;
  };
  std::vector<std::vector<Choice>> chosen_;  ///< of each expert
};

}  // namespace ballast
