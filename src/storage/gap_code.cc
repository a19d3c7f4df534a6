#include "storage/gap_code.h"

namespace ballast {
namespace {

constexpr std::uint32_t kBase = 128;

/// Calls use(gap): the positions skipped before each.
template <typename Use>
void each_gap(std::span<const Position> positions, Use use) {
  std::uint32_t next = 0;
  for (Position position : positions) {
    use(static_cast<std::uint32_t>(position) - next);
    next = static_cast<std::uint32_t>(position) + 1;
  }
}

}  // namespace

std::size_t gap_bytes(std::span<const Position> positions) {
  std::size_t bytes = positions.size();
  each_gap(positions, [&](std::uint32_t gap) {
    for (; gap >= kBase; gap /= kBase) ++bytes;
  });
  return bytes;
}

void encode_gaps(std::span<const Position> positions, std::uint8_t* out) {
  each_gap(positions, [&](std::uint32_t gap) {
    for (; gap >= kBase; gap /= kBase) *out++ = static_cast<std::uint8_t>(kBase | gap % kBase);
    *out++ = static_cast<std::uint8_t>(gap);
  });
}

void decode_gaps(const std::uint8_t* code, std::span<Position> out) {
  GapReader reader(code);
  for (Position& position : out) position = reader.next();
}

}  // namespace ballast
