// How rows of few bits come about.
#pragma once

#include <cstddef>

#include "ballast/storage.h"

namespace ballast {

/// Tokens that types of few bits do not round: where a text begins, many heads look.
inline constexpr std::size_t kFirstTokens = 4;
/// Rows of few bits are relative to the mean of up to so many tokens after the first ones.
inline constexpr std::size_t kMeanTokens = 256;

/// The type in which rows are held until their mean is known.
constexpr StorageType as_read(StorageType type) {
  return is_low_bit(type) ? StorageType::bf16 : type;
}

/// Whether rows of the type are about a mean where there is one. Tiers of int8 are: a bias would
/// take most of their 8 bits. A cache of int8 alone has no mean.
constexpr bool takes_mean(StorageType type) {
  return is_low_bit(type) || type == StorageType::int8;
}

/// Bytes of a head beside its rows of a type of few bits: the mean, and what the `first` tokens, as
/// read, take more than others.
constexpr std::size_t low_bit_bytes(StorageType type, std::size_t dim, std::size_t first) {
  if (!is_low_bit(type)) return 0;
  const std::size_t more = stored_row_bytes(as_read(type), dim) - stored_row_bytes(type, dim);
  return dim * sizeof(float) + (first < kFirstTokens ? first : kFirstTokens) * more;
}

}  // namespace ballast
