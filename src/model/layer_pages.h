// Models larger than memory: weights that are read from disk while the layers before them work.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/engine/model_file.h"

namespace ballast {

/// Which layers of a model's mapped files stay in memory. Of the others the one at work is there
/// and the two that follow, which the system reads meanwhile; of a mixture the experts that were
/// chosen. Speed depends on it, results do not: engines may share one, and forget to call it.
///
/// The system's page cache holds them (no buffers of our own, O_DIRECT): reading ahead is a hint
/// that needs no thread, a page is where kernels expect it, and two programs that run the same
/// model share what both need.
class LayerPages {
 public:
  /// Of the `whole` bytes of weights, embeddings and output included, at most `bytes` are in memory
  /// at once, or the fewest that a pass needs. `config`: of the file, or of its layers from `first`
  /// on, which are numbered from 0 here.
  LayerPages(const ModelFile& file, const ModelConfig& config, std::size_t first, std::size_t whole,
             std::size_t bytes);

  /// The layer is about to work: waits for it.
  void enter(std::size_t layer) const;
  /// The layer has worked.
  void leave(std::size_t layer) const;
  /// Of a mixture: the expert is about to work, or soon.
  void enter_expert(std::size_t layer, std::size_t expert) const;

  /// Mapped bytes of a layer of the file, experts included.
  static std::size_t bytes(const ModelFile& file, std::size_t layer);

  /// Bytes of weights that are not in memory at any time.
  std::size_t spared() const { return spared_; }

 private:
  struct Layer {
    std::vector<std::span<const std::byte>> parts;
    /// Of each expert.
    std::vector<std::vector<std::span<const std::byte>>> experts;
    std::size_t bytes = 0;
  };
  static Layer layer_of(const ModelFile& file, std::size_t layer);
  bool stays(std::size_t layer) const { return layer < resident_; }

  std::vector<Layer> layers_;
  std::size_t resident_ = 0;  ///< layers that stay: the first ones
  std::size_t spared_ = 0;
};

}  // namespace ballast
