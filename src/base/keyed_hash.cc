#include "base/keyed_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace ballast {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
constexpr std::size_t kChunk = 7;  // bytes that are below the prime, whatever they are

std::uint64_t reduce(Wide value) {
  const auto folded =
      static_cast<std::uint64_t>(value & kPrime) + static_cast<std::uint64_t>(value >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

std::uint64_t key() {
  static const std::uint64_t drawn = [] {
    std::random_device random;
    const std::uint64_t high = random();
    return 1 + (high << 32 | random()) % (kPrime - 1);
  }();
  return drawn;
}

}  // namespace

std::uint64_t keyed_hash(std::string_view text) {
  const std::uint64_t k = key();
  std::uint64_t hash = reduce(Wide{text.size() + 1} * k);
  while (!text.empty()) {
    std::uint64_t chunk = 0;
    const std::size_t size = text.size() < kChunk ? text.size() : kChunk;
    std::memcpy(&chunk, text.data(), size);
    if constexpr (std::endian::native == std::endian::big) chunk >>= 8;
    hash = reduce(Wide{hash + chunk} * k);
    text.remove_prefix(size);
  }
  return hash;
}

std::uint64_t keyed_hash(std::uint64_t number) {
  const std::uint64_t k = key();
  const std::uint64_t high = reduce(Wide{(number >> 32) + 1} * k);
  return reduce(Wide{high + (number & 0xffffffff)} * k);
}

}  // namespace ballast
