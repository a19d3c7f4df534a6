// A model whose layers are divided among ranks.
#pragma once

#include <cstddef>
#include <memory>

#include "ballast/engine/model_config.h"
#include "ballast/engine/ranks.h"
#include "ballast/matrix.h"

namespace ballast {

/// The layers that this rank has: see Model::split_layers(). A pass goes through all ranks: each
/// is given the residual stream by the one before. Chunks of a text follow one another, so that all
/// ranks work at once.
class LayerShare {
 public:
  /// Divides the layers that attend equally, and the others with them. Throws Error, on every rank,
  /// if one would have none that attends.
  LayerShare(const ModelConfig& whole, std::shared_ptr<Ranks> ranks);

  Ranks& ranks() const { return *ranks_; }
  std::size_t first() const { return first_; }           ///< its first layer, counted in the model
  const ModelConfig& config() const { return config_; }  ///< of the model, with its layers alone
  bool begins() const { return ranks_->rank() == 0; }    ///< it embeds the tokens
  bool ends() const { return ranks_->last(); }           ///< it makes the logits

  /// From the rank before, and to the next, where there is one.
  void receive_states(MutableMatrix rows) const;
  void send_states(ConstMatrix rows) const;
  /// From the last rank to all others.
  void share_logits(MutableMatrix rows) const;

 private:
  std::shared_ptr<Ranks> ranks_;
  std::size_t first_ = 0;
  ModelConfig config_;
};

}  // namespace ballast
