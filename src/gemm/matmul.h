// Products of activations with weights that stay as their file holds them.
//
// Every number of a result is one sum, added up in one order that depends only on the weight's
// type and width: not on the other rows of the call, the threads, or how a text was cut. So a
// token's logits are the same, to the last bit, whether it was read in a prompt, alone, or in a
// batch.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/engine/tensor.h"
#include "ballast/matrix.h"

namespace ballast {

/// A linear layer: rows outputs of cols inputs. Points into tensors that someone keeps.
struct Linear {
  TensorType type = TensorType::f32;
  const std::byte* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t row_bytes = 0;
  const float* bias = nullptr;  ///< rows numbers, or null

  Linear() = default;
  /// All rows of a tensor of two dimensions.
  explicit Linear(const TensorView& tensor);

  const std::byte* row(std::size_t i) const { return data + i * row_bytes; }
  /// Row i as float32, cols numbers.
  void decode_row(std::size_t i, std::span<float> out) const;
};

/// One product to make: out (m × rows) = x (m × cols) · wᵀ + bias.
struct Product {
  const Linear* linear = nullptr;
  MutableMatrix out;
};

/// Bytes that multiply() keeps to work in, for `rows` activations and weights of that type, `cols`
/// wide, on threads() threads.
std::size_t multiply_scratch(TensorType type, std::size_t cols, std::size_t rows);

/// Makes several products of the same x, over threads() threads. A product of no rows is nothing.
void multiply(ConstMatrix x, std::span<const Product> products);

inline void multiply(ConstMatrix x, const Linear& linear, MutableMatrix out) {
  const Product product{&linear, out};
  multiply(x, {&product, 1});
}

}  // namespace ballast
