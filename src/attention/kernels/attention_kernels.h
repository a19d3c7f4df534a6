// The three inner loops of attention over stored rows: logits, weights, weighted sums.
//
// All of them work on a block of up to kEntryBlock entries. What they compute for one query does
// not depend on the other queries of the call, to the last bit, nor on whether rows were unpacked
// first. Chosen at run time for the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ballast/storage.h"

namespace ballast::kernels {

inline constexpr std::size_t kEntryBlock = 128;
/// The largest dimension of keys and values.
inline constexpr std::size_t kMaxDim = 256;

/// Floats of a packed row of `dim` elements; the padding is zero.
constexpr std::size_t packed_size(std::size_t dim) { return (dim + 31) / 32 * 32; }

/// Whether qk_block() and av_block() read rows of this type as stored, without decode_packed(), for
/// any number of queries.
bool keys_as_stored(StorageType type);
bool values_as_stored(StorageType type);

/// Packs a query for keys of `type`; out holds packed_size() floats in the packed order of the
/// type. Queries of int8 and int4 keys are quantized to integers, those of rotated types rotated.
void pack_query(StorageType type, std::span<const float> row, float* out);
/// Reorders sums of values from the packed order of `type` into the order of the row; for rotated
/// types it applies the inverse rotation.
void unpack(StorageType type, const float* packed, std::span<float> row);
/// Decodes at most kEntryBlock rows into packed order, packed_size() floats a row. An f32 view of
/// the result, of dimension packed_size(), gives the kernels the same elements as `rows`. Means are
/// left out. Not for rotated types.
void decode_packed(const RowsView& rows, float* out);

/// Rows to prefetch while a kernel works on others.
struct PrefetchRange {
  RowsView rows;  ///< to have in flight when the kernel ends
  RowsView next;  ///< read when the kernel ends: `rows`, or rows prefetched earlier
};

/// logits[q · kEntryBlock + e] = <query q, key e>, for at most kEntryBlock keys. Logits of a query
/// past its last may be overwritten. queries: packed for keys.type, packed_size() apart. range:
/// null disables prefetching.
void qk_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
              const PrefetchRange* range = nullptr);

/// The least and the largest of kEntryBlock positions.
struct PositionRange {
  std::int32_t first, last;
};
PositionRange position_range(const std::int32_t* positions);

/// How dot products become logits for one query and one block.
struct LogitRule {
  float scale = 1.0f;
  float softcap = 0.0f;                     ///< 0: none
  const float* log_weights = nullptr;       ///< or null
  const std::int32_t* positions = nullptr;  ///< of the entries; null: no mask, no slope
  bool hide = false;                        ///< whether any entry may be hidden
  std::int32_t query_position = 0;
  std::int64_t sliding_window = 0;  ///< 0: none
  float slope = 0.0f;
};

/// The logits of a row are `scale` times its elements. `largest` is their maximum if none is NaN.
/// Otherwise it is NaN, or exponentiate() yields NaN where the row has one.
struct FinishedLogits {
  float largest, scale;
};

/// Turns the first `count` dot products of each row, one row per rule, into logits. Masked logits
/// become -infinity, as does the rest of the row up to kEntryBlock. Where only the scale applies,
/// the dot products stay unchanged. Reads log weights and positions up to count rounded up to 16,
/// at most kEntryBlock.
void finish_logits(std::span<const LogitRule> rules, std::size_t count, float* logits,
                   FinishedLogits* finished);

/// <q, R_n μ> of queries and entries that stand at positions n = b + j, 0 ≤ j < kTurnedTogether:
///   Σ_f A_f cos(θ_f n) + B_f sin(θ_f n),  A_f = q_f μ_f + q_f' μ_f',  B_f = q_f' μ_f - q_f μ_f'
/// for the pairs (f, f') that turn, plus the product of what does not turn.
struct TurnedMean {
  std::size_t pairs = 0;
  const float* coefficients = nullptr;  ///< a query: A of every pair, then B; `stride` floats each
  std::size_t stride = 0;
  const float* constants = nullptr;  ///< a query: the product of what does not turn
  std::size_t fast = 0;              ///< as Turns::fast(), pairs where none is slow; …
  const float* columns = nullptr;    ///< … columns() …
  const float* factors = nullptr;    ///< … factors()
};
inline constexpr std::size_t kTurnedTogether = 64;

/// products[q · kTurnedTogether + j] = these products of `count` queries. cosines, sines: of
/// position b.
void turned_products(const TurnedMean& mean, const float* cosines, const float* sines,
                     std::size_t count, float* products);

/// Replaces the kEntryBlock elements x of each row by e^(scale · x - largest). `largest` must be
/// finite and at least the largest logit of the row; sums[row] = the sum of the row.
void exponentiate(std::span<const FinishedLogits> rows, float* logits, double* sums);

/// sums[q] = factors[q] · sums[q] + Σ_e weights[q · kEntryBlock + e] · value e. Each query has
/// kEntryBlock weights, 0 past the last entry. sums: packed for values.type, packed_size() apart.
/// range: as for qk_block().
void av_block(const RowsView& values, const float* weights, std::size_t count, const float* factors,
              float* sums, const PrefetchRange* range = nullptr);

/// sums[e] += Σ_q factors[q] · weights[q · kEntryBlock + e], query by query; at most kEntryBlock
/// sums.
void add_columns(const float* weights, const float* factors, std::size_t count,
                 std::span<float> sums);
/// maxima[e] = the maximum of maxima[e] and factors[q] · weights[q · kEntryBlock + e] over q.
void max_columns(const float* weights, const float* factors, std::size_t count,
                 std::span<float> maxima);
/// sums[e] += Σ_q (factors[q] · weights[q · kEntryBlock + e])², query by query.
void add_squared_columns(const float* weights, const float* factors, std::size_t count,
                         std::span<float> sums);

}  // namespace ballast::kernels
