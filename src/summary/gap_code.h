// Ascending positions in little more than a byte each: the gaps between them, 7 bits a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ballast/attention.h"

namespace ballast {

/// Bytes of the code of ascending positions from 0.
std::size_t gap_bytes(std::span<const Position> positions);

/// Writes the code to the first gap_bytes() of `out`.
void encode_gaps(std::span<const Position> positions, std::uint8_t* out);

/// Reads as many positions as `out` takes. `code`: what encode_gaps() wrote of at least as many.
void decode_gaps(const std::uint8_t* code, std::span<Position> out);

/// Most bytes that a code of positions below `tokens` takes beside one a position: one more for 128
/// or more that are skipped before an entry, two for 128², of which there are fewer.
constexpr std::size_t more_gap_bytes(std::size_t tokens) { return tokens / 129; }

}  // namespace ballast
