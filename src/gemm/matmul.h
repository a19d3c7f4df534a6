// Matrix products of activations with weights in their stored type: out = x · wᵀ + bias, where x is
// m × k, w is n × k and out is m × n.
//
// Every element of out is summed in one order, which depends only on the weight's type and k: not
// on m, the number of threads, or how a prompt was cut. So a token's logits have the same bits
// whether it was read in a prompt, alone, or in a batch. docs/decisions/kernels.md describes the
// kernels.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/engine/tensor.h"
#include "ballast/matrix.h"

namespace ballast {

/// The weights of a linear layer: n = rows outputs of k = cols inputs. Points into tensors that
/// outlive it.
struct Linear {
  TensorType type = TensorType::f32;
  const std::byte* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t row_bytes = 0;
  const float* bias = nullptr;  ///< `rows` elements, or null

  Linear() = default;
  /// All rows of a tensor. Throws Error unless it has two dimensions.
  explicit Linear(const TensorView& tensor);

  const std::byte* row(std::size_t i) const { return data + i * row_bytes; }
  /// Dequantizes row i into `cols` elements.
  void decode_row(std::size_t i, std::span<float> out) const;
};

/// One product: out (m × rows) = x (m × cols) · wᵀ + bias.
struct Product {
  const Linear* linear = nullptr;
  MutableMatrix out;
};

/// Bytes of scratch that multiply() keeps for m activations of k elements and weights of this type,
/// on loop_threads() threads.
std::size_t multiply_scratch(TensorType type, std::size_t k, std::size_t m);

/// Computes several products of the same x on loop_threads() threads. Products without rows are
/// allowed.
void multiply(ConstMatrix x, std::span<const Product> products);

inline void multiply(ConstMatrix x, const Linear& linear, MutableMatrix out) {
  const Product product{&linear, out};
  multiply(x, {&product, 1});
}

}  // namespace ballast
