// The matrices of all experts of a layer in one tensor of a Hugging Face folder (gpt-oss).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ballast/engine/tensor.h"

namespace ballast {

/// One of two forms is set: numbers, or blocks and scales.
struct StackedExperts {
  std::size_t experts = 0, rows = 0, columns = 0;
  TensorView numbers = {};  ///< [experts, columns, rows], of a type that is not quantized
  TensorView blocks = {};   ///< [experts, rows, columns/32, 16], u8: MXFP4 codes, two a byte
  TensorView scales = {};   ///< [experts, rows, columns/32], u8

  /// Throws Error, beginning with `file`, on another shape or type.
  void check(const std::string& file) const;
  /// Rows first, first + step, … of an expert, one after another, as tensors of the returned type.
  TensorType take(std::size_t expert, std::size_t first, std::size_t step,
                  std::vector<std::byte>& out) const;
  /// The same of a bias, [experts, rows].
  std::vector<std::byte> take_bias(const TensorView& bias, std::size_t expert, std::size_t first,
                                   std::size_t step) const;
};

}  // namespace ballast
