// The matrices of a forward pass.
#pragma once

#include <cstddef>
#include <vector>

#include "ballast/engine/model_config.h"
#include "ballast/matrix.h"
#include "base/thread_pool.h"
#include "model/weights.h"

namespace ballast {

/// One row per token. Rows [first, tokens) are at work: those before them are done.
struct Activations {
  Activations(const ModelConfig& config, std::size_t capacity);

  /// Bytes for that many tokens.
  static std::size_t bytes(const ModelConfig& config, std::size_t tokens);

  Matrix residual;  ///< the residual stream
  Matrix normed;    ///< the input of a block: attention or feed-forward
  Matrix query, key, value, attended;
  Matrix block;  ///< the output of a block, added to the residual stream
  Matrix gate, up;
  Matrix conv;                                 ///< what a convolution is given, see Weight::conv_in
  Matrix attention_gate;                       ///< of gated attention
  Matrix delta_gate, delta_beta, delta_decay;  ///< of the delta rule
  Matrix router, expert_in, expert_out;        ///< with experts: weights; the rows of one
  Matrix rotations[2];  ///< cosines and sines of the tokens' positions, by either rotation
  std::size_t capacity = 0;
  std::size_t tokens = 0;
  std::size_t first = 0;

  /// The rows at work.
  MutableMatrix rows(Matrix& m) const { return m.view().slice(first, tokens - first); }
  ConstMatrix rows(const Matrix& m) const { return m.view().slice(first, tokens - first); }
  /// The rows of all tokens.
  MutableMatrix all(Matrix& m) const { return m.view().slice(0, tokens); }

  /// Elements from which on a parallel loop over rows pays.
  static constexpr std::size_t kParallelWork = 64 * 1024;
  /// Calls body(i) for rows [from, tokens) of `width` elements, in parallel if that pays.
  template <typename Body>
  void for_rows(std::size_t from, std::size_t width, Body&& body) const {
    const std::size_t count = tokens - from;
    parallel_for(
        count, [&](std::size_t i) { body(from + i); }, count * width >= kParallelWork);
  }
  /// out = norm of x, in the rows at work; a copy where the model has no such norm.
  void normalise(const ModelConfig& config, const Norm& norm, const Matrix& x, Matrix& out) const;
};

}  // namespace ballast
