// What a replay pass of a text finds out about its entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ballast/matrix.h"
#include "base/own_pages.h"
#include "methods/allocation.h"

namespace ballast {

/// One KV head.
struct ReplayHead {
  VectorInOwnPages<float>
      scores;  ///< of every token of the text; rms and mean: sums, until finished
  /// Query heads × tokens: |W_O^T v|, for ReplayScore::max.
  std::shared_ptr<const Matrix> value_norms;
  VectorInOwnPages<float> norms;  ///< in stream: of each entry, the largest of the query heads'

  /// Scores and norms of what is kept, in the order of a summary's segments: a run for each tier,
  /// in the order of the text. `given`: the tier of each entry of `runs`, `tiers` if it is evicted.
  ReplayHead kept(std::span<const ScoredRun> runs, std::span<const std::uint8_t> given,
                  std::size_t tiers) const;
};

/// All layers and heads. Forks share them.
class ReplayScores {
 public:
  ReplayScores(std::size_t layers, std::size_t heads) : read_(layers), layers_(layers) {
    for (auto& layer : layers_) layer.resize(heads);
  }
  std::vector<ReplayHead>& layer(std::size_t i) { return layers_.at(i); }
  const std::vector<ReplayHead>& layer(std::size_t i) const { return layers_.at(i); }

  /// Tokens of the text that a layer has read again.
  std::size_t& read(std::size_t i) { return read_.at(i); }

  /// With the same value norms.
  ReplayScores copy() const {
    ReplayScores out(layers_.size(), layers_[0].size());
    out.read_ = read_;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      for (std::size_t h = 0; h < layers_[l].size(); ++h) {
        out.layers_[l][h] = layers_[l][h];
      }
    }
    return out;
  }

  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const auto& layer : layers_) {
      for (const ReplayHead& head : layer) {
        const Matrix* values = head.value_norms.get();
        const std::size_t norms = values == nullptr ? 0 : values->rows() * values->cols();
        bytes += (head.scores.capacity() + head.norms.capacity() + norms) * sizeof(float);
      }
    }
    return bytes;
  }

 private:
  std::vector<std::size_t> read_;
  std::vector<std::vector<ReplayHead>> layers_;
};

}  // namespace ballast
