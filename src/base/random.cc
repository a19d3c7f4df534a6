#include "ballast/random.h"

namespace ballast {
namespace {

using Block = std::array<std::uint32_t, 4>;

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw: Parallel random numbers, 2011).
Block philox(Block counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

}  // namespace

std::array<std::uint32_t, 4> random_bits(const RandomKey& key, std::uint64_t position,
                                         std::uint32_t stream, std::uint32_t index) {
  // The head and layer go in with the key's 64 bits by a bijective mix, so that no two heads
  // share a key while each is below 2^32.
  const Block mixed =
      philox({key.layer, key.head, 0x62616c6cu, 0x61737431u}, static_cast<std::uint32_t>(key.seed),
             static_cast<std::uint32_t>(key.seed >> 32));
  return philox({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                 stream, index},
                mixed[0], mixed[1]);
}

double random_unit(const RandomKey& key, std::uint64_t position, std::uint32_t stream,
                   std::uint32_t index) {
  const auto bits = random_bits(key, position, stream, index);
  return to_unit(bits[0], bits[1]);
}

}  // namespace ballast
