#include "ballast/random.h"

#include <Random123/philox.h>

namespace ballast {

std::array<std::uint32_t, 4> random_bits(const RandomKey& key, std::uint64_t position,
                                         std::uint32_t stream, std::uint32_t index) {
  // The head and layer go in with the key's 64 bits by a bijective mix, so that no two heads
  // share a key while each is below 2^32.
  using Rng = r123::Philox4x32;
  Rng rng;
  Rng::ctr_type who = {{key.layer, key.head, 0x62616c6cu, 0x61737431u}};
  Rng::key_type seed = {
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)}};
  Rng::ctr_type mixed = rng(who, seed);
  Rng::ctr_type what = {{static_cast<std::uint32_t>(position),
                         static_cast<std::uint32_t>(position >> 32), stream, index}};
  Rng::ctr_type bits = rng(what, Rng::key_type{{mixed[0], mixed[1]}});
  return {bits[0], bits[1], bits[2], bits[3]};
}

double random_unit(const RandomKey& key, std::uint64_t position, std::uint32_t stream,
                   std::uint32_t index) {
  const auto bits = random_bits(key, position, stream, index);
  return to_unit(bits[0], bits[1]);
}

}  // namespace ballast
