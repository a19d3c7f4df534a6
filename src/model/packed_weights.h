// Matrices of Hugging Face folders that are quantized in other ways than GGUF's, with scales in
// tensors of their own: FP8, compressed-tensors, NVFP4, GPTQ and AWQ.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ballast/engine/tensor.h"

namespace ballast {

/// A matrix in a type that is multiplied.
struct UnpackedMatrix {
  TensorType type = TensorType::q8_0;
  std::vector<std::size_t> shape;  ///< rows, columns
  std::vector<std::byte> data;
};

/// The matrix STEM of tensors STEM.weight (F8_E4M3, I8) and STEM.weight_scale or
/// STEM.weight_scale_inv, STEM.weight_packed and STEM.weight_scale, or STEM.qweight, STEM.scales
/// and STEM.qzeros; nothing where these are not there. `find`: the tensor of a name, or null.
/// `zeros_are_less_one`: asked of GPTQ files: zero points are stored so before
/// checkpoint_format gptq_v2.
///
/// Codes of 4 bits whose scales are shared by 32 columns keep them, as Q4_0 or Q4_1; codes of 8
/// bits as Q8_0 (scales are rounded to f16). Other matrices are decoded and written as Q8_0.
/// Throws Error, beginning with `file`, on shapes that do not go together, and on columns that are
/// no multiple of 32.
std::optional<UnpackedMatrix> unpack_matrix(
    const std::function<const TensorView*(const std::string& name)>& find, const std::string& stem,
    const std::function<bool()>& zeros_are_less_one, const std::string& file);

}  // namespace ballast
