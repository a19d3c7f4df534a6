#include "attention/kernels/rotated.h"

#include <bit>
#include <cmath>

#include "attention/kernels/attention_kernels.h"

namespace ballast::kernels {
namespace {

template <StorageType type>
void pack(std::span<const float> row, float* out) {
  const std::size_t dim = row.size(), size = packed_size(dim);
  const RowLayout<type> layout(dim);
  float rotated[kMaxDim];
  hadamard_rotate(row, rotated);
  float largest = 0.0f, finite = 0.0f;
  for (std::size_t i = 0; i < dim; ++i) {
    largest = std::max(largest, std::abs(rotated[i]));
    finite += rotated[i] * 0.0f;
  }
  const bool any = largest > 0.0f && finite == 0.0f;
  const float inverse = any ? 127.0f / largest : 0.0f;
  std::fill_n(out, size, 0.0f);
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  std::int32_t sum = 0;
  for (std::size_t begin = 0; any && begin < dim; begin += layout.bytes) {
    const std::size_t count = std::min(layout.bytes, dim - begin);
    for (std::size_t i = 0; i < count; ++i) {
      // Adding 1.5·2^23 leaves the nearest integer in the low bits.
      const auto code = static_cast<std::int8_t>(
          std::bit_cast<std::int32_t>(rotated[begin + i] * inverse + 0x1.8p23f));
      codes[i] = code;
      sum += code;
    }
    codes += layout.chunks * kCodeChunk;
  }
  const std::int32_t start = -128 * sum;
  std::memcpy(out + size - 2, &start, sizeof(start));
  out[size - 1] = largest / 127.0f + finite;
}

}  // namespace

void pack_rotated(StorageType type, std::span<const float> row, float* out) {
  if (type == StorageType::q4) return pack<StorageType::q4>(row, out);
  if (type == StorageType::q3) return pack<StorageType::q3>(row, out);
  pack<StorageType::q2>(row, out);
}

}  // namespace ballast::kernels
