// Elements of the caller's heads as float32, and back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ballast/heads.h"
#include "storage/round.h"

namespace ballast {

/// Largest dimension of a head's keys and values.
inline constexpr std::size_t kMaxHeadDim = 256;

/// One vector in float32: where it lies if it is that, else decoded into `buffer` (dim elements).
/// f16 and bf16 elements are finite.
inline std::span<const float> read_head(const HeadsView& heads, std::size_t token, std::size_t head,
                                        float* buffer) {
  const void* from = heads.at(token, head);
  if (heads.type == ElementType::f32) return {static_cast<const float*>(from), heads.dim};
  const auto* codes = static_cast<const std::uint16_t*>(from);
  if (heads.type == ElementType::f16) {
    for (std::size_t i = 0; i < heads.dim; ++i) buffer[i] = kernels::f16_decode(codes[i]);
  } else {
    for (std::size_t i = 0; i < heads.dim; ++i) buffer[i] = kernels::bf16_decode(codes[i]);
  }
  return {buffer, heads.dim};
}

/// Stores one vector, rounded to nearest, saturating.
inline void write_head(std::span<const float> row, const MutableHeadsView& heads, std::size_t token,
                       std::size_t head) {
  void* to = heads.at(token, head);
  if (heads.type == ElementType::f32) {
    std::copy(row.begin(), row.end(), static_cast<float*>(to));
    return;
  }
  auto* codes = static_cast<std::uint16_t*>(to);
  if (heads.type == ElementType::f16) {
    for (std::size_t i = 0; i < row.size(); ++i) codes[i] = kernels::f16_encode(row[i]);
  } else {
    for (std::size_t i = 0; i < row.size(); ++i) codes[i] = kernels::bf16_encode(row[i]);
  }
}

/// Whether the (token, head) pairs of the heads [first, first + group) are rows of one stride in
/// float32, tokens outermost.
template <typename Void>
bool are_rows(const BasicHeadsView<Void>& heads, std::size_t group) {
  return heads.type == ElementType::f32 &&
         (group == 1 || heads.tokens <= 1 || heads.token_stride == group * heads.head_stride);
}

/// These rows.
template <typename Float, typename Void>
MatrixView<Float> rows_of(const BasicHeadsView<Void>& heads, std::size_t first, std::size_t group) {
  return {static_cast<Float*>(heads.at(0, first)), heads.tokens * group, heads.dim,
          group == 1 ? heads.token_stride : heads.head_stride};
}

}  // namespace ballast
