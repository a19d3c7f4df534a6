// What a second reading of a text finds out about its entries.
#pragma once

#include <cstddef>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

/// One KV head.
struct ReplayHead {
  std::vector<float> scores;  ///< of every token of the text; rms and mean: sums, until finished
  Matrix value_norms;         ///< query heads × tokens; |W_O^T v|, for ReplayScore::max
};

/// All layers and heads. Forks share them.
class ReplayScores {
 public:
  ReplayScores(std::size_t layers, std::size_t heads) : layers_(layers) {
    for (auto& layer : layers_) layer.resize(heads);
  }
  std::vector<ReplayHead>& layer(std::size_t i) { return layers_.at(i); }
  const std::vector<ReplayHead>& layer(std::size_t i) const { return layers_.at(i); }

  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const auto& layer : layers_) {
      for (const ReplayHead& head : layer) {
        const std::size_t norms = head.value_norms.rows() * head.value_norms.cols();
        bytes += (head.scores.capacity() + norms) * sizeof(float);
      }
    }
    return bytes;
  }

 private:
  std::vector<std::vector<ReplayHead>> layers_;
};

}  // namespace ballast
