#include "base/keyed_hash.h"

#include <bit>
#include <random>

namespace ballast::detail {

static_assert(std::endian::native == std::endian::little, "seven bytes lie below 2^56");

HashKeys draw_hash_keys() {
  std::random_device random;
  const auto draw = [&] {
    const std::uint64_t high = random();
    return 1 + ((high << 32 | random()) & ((std::uint64_t{1} << 60) - 1));
  };
  const std::uint64_t first = draw();
  return {first, draw()};
}

}  // namespace ballast::detail
