// Attention kernels for many queries by tiles (AMX), beside those of avx512.h and rotated_avx512.h,
// whose bits they have.
//
// Keys and values are packed as tiles once a block, for all of its queries. Sums of integers are
// exact, so their order is free. Sums of bf16 have the order of simd/bf16_tiles-inl.h, which
// has_amx_bf16() makes the vectors of avx512.h follow, too: a token's logits are the same however a
// prompt is cut. int4 stays with vectors: they spend most of its time on scales and codes.
#pragma once

#include <cstddef>

#include "attention/kernels/attention_kernels.h"
#include "ballast/storage.h"
#include "simd/cpu.h"

namespace ballast::kernels::amx {

/// The least number of queries: a full tile. Of bf16, from where the vectors would pack rows once
/// for all queries, too.
constexpr std::size_t least_queries(StorageType type) { return type == StorageType::bf16 ? 5 : 16; }

/// Whether tiles multiply rows of this type for so many queries.
inline bool multiplies(StorageType type, std::size_t queries) {
  if (queries < least_queries(type)) return false;
  if (type == StorageType::bf16) return has_amx_bf16();
  return (type == StorageType::int8 || is_rotated(type)) && has_amx_int8() && has_avx512_bf16();
}

/// Products of tiles that a product of a query and a key takes, or of a weight and a value: of bf16
/// for bf16, else of int8. 0 where tiles do not multiply the type. For int8 both are two digits,
/// and 32 elements of keys, which have a scale, fill half of a tile.
constexpr int tile_products(StorageType type, bool is_keys) {
  if (type == StorageType::int8) return is_keys ? 4 : 2;
  return type == StorageType::bf16 || is_rotated(type) ? 1 : 0;
}

/// qk_block() and av_block() of attention_kernels.h for least_queries() or more, with sums in the
/// order of the row, or of the codes for rotated types. range: for bf16; integers prefetch nothing.
void qk_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
              const PrefetchRange* range);
void av_block(const RowsView& values, const float* weights, std::size_t count, const float* factors,
              float* sums, const PrefetchRange* range);

}  // namespace ballast::kernels::amx
