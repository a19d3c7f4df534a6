#include "model/stacked_experts.h"

#include <cstring>

#include "base/fail.h"
#include "base/printable.h"
#include "base/thread_pool.h"

namespace ballast {
namespace {

/// Codes of a block, and its bytes.
constexpr std::size_t kBlock = 32, kCodes = kBlock / 2;

/// GGUF's block: the scale, then byte i with code i and code i + 16. Folders have codes 2i and
/// 2i + 1 in byte i.
void write_block(const std::byte* codes, std::byte scale, std::byte* out) {
  const auto code = [&](std::size_t i) {
    return i % 2 == 0 ? codes[i / 2] & std::byte{0x0f} : codes[i / 2] >> 4;
  };
  out[0] = scale;
  for (std::size_t i = 0; i < kCodes; ++i) out[1 + i] = code(i) | code(i + kCodes) << 4;
}

}  // namespace

void StackedExperts::check(const std::string& file) const {
  const auto expect = [&](const TensorView& tensor, const std::vector<std::size_t>& shape,
                          bool fits) {
    require(tensor.shape == shape && fits,
            "{}: the tensor '{}' is {} of shape {}, but the model needs one of shape {}", file,
            printable(tensor.name), to_string(tensor.type), to_string(tensor.shape),
            to_string(shape));
  };
  if (blocks.shape.empty()) {
    expect(numbers, {experts, columns, rows},
           numbers.type == TensorType::f32 || numbers.type == TensorType::f16 ||
               numbers.type == TensorType::bf16);
    return;
  }
  require(columns % kBlock == 0, "{}: the tensor '{}' has rows of {} numbers, not of whole blocks",
          file, printable(blocks.name), columns);
  expect(blocks, {experts, rows, columns / kBlock, kCodes}, blocks.type == TensorType::u8);
  expect(scales, {experts, rows, columns / kBlock}, scales.type == TensorType::u8);
}

TensorType StackedExperts::take(std::size_t expert, std::size_t first, std::size_t step,
                                std::vector<std::byte>& out) const {
  const TensorType type = blocks.shape.empty() ? numbers.type : TensorType::mxfp4;
  const std::size_t row_bytes = tensor_bytes(type, columns), size = block_bytes(type);
  out.resize(rows / step * row_bytes);
  parallel_for(rows / step, [&](std::size_t r) {
    std::byte* const row = out.data() + r * row_bytes;
    const std::size_t from = expert * rows + first + r * step;
    if (type == TensorType::mxfp4) {
      for (std::size_t b = 0; b < columns / kBlock; ++b) {
        const std::size_t at = from * (columns / kBlock) + b;
        write_block(blocks.data.data() + at * kCodes, scales.data[at], row + b * size);
      }
      return;
    }
    const std::byte* const column = numbers.data.data() + expert * columns * rows * size;
    for (std::size_t c = 0; c < columns; ++c) {
      std::memcpy(row + c * size, column + (c * rows + first + r * step) * size, size);
    }
  });
  return type;
}

std::vector<std::byte> StackedExperts::take_bias(const TensorView& bias, std::size_t expert,
                                                 std::size_t first, std::size_t step) const {
  const std::size_t size = block_bytes(bias.type);
  std::vector<std::byte> out(rows / step * size);
  for (std::size_t r = 0; r < rows / step; ++r) {
    std::memcpy(out.data() + r * size, bias.data.data() + (expert * rows + first + r * step) * size,
                size);
  }
  return out;
}

}  // namespace ballast
