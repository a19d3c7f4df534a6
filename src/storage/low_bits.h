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

}  // namespace ballast
