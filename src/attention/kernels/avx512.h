// Attention kernels for rows of bf16, int8 and int4 on processors with AVX512_BF16, AVX512_VNNI and
// AVX512_VBMI. These multiply-add bf16 in pairs and bytes in fours. Highway does not know them, so
// this target stands beside Highway's.
//
// Keys of a block are transposed first, so that a vector holds the same few coordinates of 16 keys.
// No sum is reduced across a vector, and 16 keys share the work of a group's scale. Up to four
// queries read int4 keys as stored, and their sums are reduced once per piece. Values of a block
// are interleaved, so that a vector holds 16 coordinates of two or four entries. Both are done once
// for all queries.
#pragma once

#include <cstddef>
#include <span>

#include "attention/kernels/attention_kernels.h"
#include "ballast/storage.h"
#include "simd/cpu.h"

namespace ballast::kernels::avx512 {

/// Whether these kernels support rows of this type on this processor.
inline bool multiplies(StorageType type) {
  const bool integers = type == StorageType::int8 || type == StorageType::int4;
  return (integers || type == StorageType::bf16) && detail::has(detail::kBf16 | detail::kVnni);
}

/// The functions of the same names in attention_kernels.h, with sums in the order of the row.
///
/// Queries are rounded to bf16 for bf16 keys, to 15 bits with one scale for int8 keys, and to 8
/// bits with a scale per group for int4 keys. Weights are rounded to bf16 for bf16 values. Products
/// of weights and int8 scales are rounded to 16 bits, the largest of a block to the largest code.
/// Products with int4 scales are rounded to 8 bits, likewise for each 64 entries. Each rounding
/// error is at most about that of the stored elements themselves.
void pack_query(StorageType type, std::span<const float> row, float* out);
void qk_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
              const PrefetchRange* range);
void av_block(const RowsView& values, const float* weights, std::size_t count, const float* factors,
              float* sums, const PrefetchRange* range);

}  // namespace ballast::kernels::avx512
