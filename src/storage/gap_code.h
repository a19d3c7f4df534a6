// Ascending positions in little more than a byte each: the gaps between them, 7 bits a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ballast/storage.h"

namespace ballast {

/// Bytes of the code of ascending positions from 0.
std::size_t gap_bytes(std::span<const Position> positions);

/// Writes the code to the first gap_bytes() of `out`.
void encode_gaps(std::span<const Position> positions, std::uint8_t* out);

/// Reads a code position by position.
class GapReader {
 public:
  explicit GapReader(const std::uint8_t* code) : code_(code) {}
  Position next() {
    std::uint32_t gap = 0;
    for (int shift = 0;; shift += 7) {
      gap |= (*code_ & 127u) << shift;  // in bytes that others follow, the top bit is set
      if (*code_++ < 128u) break;
    }
    next_ += gap;
    return static_cast<Position>(next_++);
  }

 private:
  const std::uint8_t* code_;
  std::uint32_t next_ = 0;
};

/// Reads as many positions as `out` takes. `code`: what encode_gaps() wrote of at least as many.
void decode_gaps(const std::uint8_t* code, std::span<Position> out);

/// Most bytes that a code of positions below `tokens` takes beside one a position: one more for 128
/// or more that are skipped before an entry, two for 128², of which there are fewer.
constexpr std::size_t more_gap_bytes(std::size_t tokens) { return tokens / 129; }

}  // namespace ballast
