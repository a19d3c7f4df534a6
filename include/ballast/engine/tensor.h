// Tensors as files hold them: a name, a type, a shape and raw bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// Element types of tensor files. The quantized ones, from q4_0 on, are GGUF's: their numbers come
/// in blocks along the last dimension, and only whole blocks exist.
enum class TensorType : std::uint8_t {
  f32,
  f64,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3,  // of folders whose weights have scales beside them
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  fp4,     // MXFP4 in memory: its codes, and a float16 scale; in no file
  iq4_xs,  // this and all below are decoded when a model is loaded: see loaded_as()
  iq3_xxs,
  iq3_s,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq1_s,
  iq1_m,
  mxfp4,
  tq1_0,
  tq2_0
};

/// "F32", "Q4_K", …
std::string_view to_string(TensorType type);

bool is_quantized(TensorType type);

/// The type that a matrix of a model is multiplied in: itself; BF16 for F8_E4M3; IQ4_NL for
/// IQ4_XS and FP4 for MXFP4, whose codes they keep; Q8_0 for the other types of few bits that
/// encode() does not write.
TensorType loaded_as(TensorType type);

/// Numbers in one block: 1 for types that are not quantized.
std::size_t block_size(TensorType type);

/// Bytes of one block.
std::size_t block_bytes(TensorType type);

/// Bytes of `count` numbers, a multiple of block_size(). Throws Error if it is not, or on overflow.
std::size_t tensor_bytes(TensorType type, std::size_t count);

/// Product of the dimensions (1 when there are none). Throws Error on overflow.
std::size_t element_count(std::span<const std::size_t> shape);

/// "[2, 3]"
std::string to_string(std::span<const std::size_t> shape);

/// A tensor inside a file that someone keeps open.
struct TensorView {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::size_t> shape;   ///< outermost first, row-major: a linear layer is [out, in]
  std::span<const std::byte> data;  ///< not necessarily aligned

  std::size_t size() const;  ///< numbers in it
};

/// Decodes `out.size()` numbers, whole blocks, from the start of `data`. Integers become the
/// nearest float, booleans 0 or 1. Throws Error if `data` is too short or the count splits a block.
void decode(TensorType type, std::span<const std::byte> data, std::span<float> out);

/// All numbers of the tensor, row-major.
std::vector<float> to_float(const TensorView& tensor);

/// Row i of a tensor of two dimensions as float32, out.size() = shape[1].
void decode_row(const TensorView& tensor, std::size_t i, std::span<float> out);

/// Encodes finite numbers, whole blocks, into tensor_bytes(type, numbers.size()) bytes, rounding to
/// nearest; out-of-range values saturate. Throws Error for the types that loaded_as() changes. The
/// quantizers choose each block's scale from its
/// extremes alone: valid files and fair test models, not the best quantization that the type
/// allows.
void encode(TensorType type, std::span<const float> numbers, std::span<std::byte> out);
std::vector<std::byte> encode(TensorType type, std::span<const float> numbers);

}  // namespace ballast
