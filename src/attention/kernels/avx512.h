// The inner loops of attention for processors that multiply and add 16-bit floats in pairs and
// bytes in fours (AVX512_BF16, AVX512_VNNI, AVX512_VBMI), which Highway does not know: a target of
// our own beside Highway's, for rows of bf16, int8 and int4.
//
// Keys of a block are transposed first, so that a vector holds the same few coordinates of 16 keys:
// no sum has to be added up across a vector, and what a group's scale costs is shared by 16 keys.
// Up to four queries take keys of int4 as they are, and their sums are added up once a piece.
// Values of a block are interleaved, so that a vector holds 16 coordinates of two or four entries.
// Both are done once for all queries.
#pragma once

#include <cstddef>
#include <span>

#include "attention/kernels/attention_kernels.h"
#include "ballast/storage.h"
#include "simd/cpu.h"

namespace ballast::kernels::avx512 {

/// Whether rows of this type are multiplied here, on this processor.
inline bool multiplies(StorageType type) {
  const bool integers = type == StorageType::int8 || type == StorageType::int4;
  return (integers || type == StorageType::bf16) && detail::has(detail::kBf16 | detail::kVnni);
}

/// The functions of the same names in attention_kernels.h, with sums in the order of the row.
///
/// Queries of bf16 keys are rounded to bf16, those of int8 keys to 15 bits with one scale, those of
/// int4 keys to 8 bits with a scale for each group. Weights are rounded to bf16 where they meet
/// bf16 values; with the scales of int8 values to 16 bits, the largest of a block being the largest
/// number; with those of int4 values to 8 bits, the largest of 64 entries being it. So each
/// rounding is at most about that of the stored numbers themselves.
void pack_query(StorageType type, std::span<const float> row, float* out);
void qk_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
              const PrefetchRange* range);
void av_block(const RowsView& values, const float* weights, std::size_t count, const float* factors,
              float* sums, const PrefetchRange* range);

}  // namespace ballast::kernels::avx512
