// Rows of a head as q4, q3 or q2 relative to their mean, many at once: the format of
// storage/rotated.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ballast/heads.h"
#include "ballast/storage.h"

namespace ballast::kernels {

/// The rows of one head in the caller's memory.
template <typename Void>
struct HeadRows {
  Void* data = nullptr;
  ElementType type = ElementType::f32;
  std::size_t rows = 0;
  std::size_t dim = 0;     ///< at most 256
  std::size_t stride = 0;  ///< elements from a row to the next
};

/// How rows turn with their index j: element i of R_j x is x[i] c[i] + x[partner[i]] s[i], where c
/// and s are the 2 · dim numbers of row j of `table`. No table: R_j is the identity.
struct IndexTurns {
  const float* table = nullptr;
  const std::uint16_t* partner = nullptr;
};

/// mean[i]: of element i of the rows, each turned back by its index; not finite where an element is
/// not. Sums are float32, over rows in order.
void mean_of_rows(const HeadRows<const void>& rows, const IndexTurns& turns, float* mean);

/// Codes and scales of the rows relative to the mean, turned by the index. `energies[j]` grows by
/// the square of row j without the mean; it is infinite or NaN where that is not finite or above
/// 1e34, and the codes are then undefined. `codes`: row_bytes() a row. `averaged`: the scale for
/// values (storage/rotated.h).
void encode_rows(const HeadRows<const void>& rows, const IndexTurns& turns, const float* mean,
                 StorageType type, bool averaged, std::byte* codes, std::uint16_t* scales,
                 float* energies);

/// The inverse.
void decode_rows(StorageType type, const std::byte* codes, const std::uint16_t* scales,
                 const IndexTurns& turns, const float* mean, const HeadRows<void>& rows);

}  // namespace ballast::kernels
