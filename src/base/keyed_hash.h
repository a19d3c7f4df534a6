// A hash that nobody outside can foresee: for tables whose keys come from files and requests. The
// library's own hash has no key, so that a file may hold names that all meet in one place, and the
// time to read it grows with the square of their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ballast {
namespace detail {

__extension__ using Wide = unsigned __int128;

inline constexpr std::uint64_t kHashPrime = (std::uint64_t{1} << 61) - 1;

/// Two numbers from 1 to 2^60.
struct HashKeys {
  std::uint64_t first, second;
};
HashKeys draw_hash_keys();

/// The same for as long as the process lives.
inline const HashKeys& hash_keys() {
  static const HashKeys keys = draw_hash_keys();
  return keys;
}

/// Modulo 2^61 - 1, for a value below 3 * 2^120.
inline std::uint64_t reduce(Wide value) {
  const auto folded =
      static_cast<std::uint64_t>(value & kHashPrime) + static_cast<std::uint64_t>(value >> 61);
  return folded >= kHashPrime ? folded - kHashPrime : folded;
}

/// Fewer than seven bytes as one number below 2^48; of texts of one length, each its own.
inline std::uint64_t few_bytes(const char* text, std::size_t size) {
  if (size >= 4) {
    std::uint32_t low, high;
    std::memcpy(&low, text, 4);
    std::memcpy(&high, text + size - 4, 4);
    return low | (std::uint64_t{high} >> (32 - 8 * (size - 4))) << 32;
  }
  const auto byte = [&](std::size_t i) {
    return std::uint64_t{static_cast<unsigned char>(text[i])};
  };
  return size == 0 ? 0 : byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
}

}  // namespace detail

/// A polynomial over the field of 2^61 - 1 in a key drawn once a process (Carter and Wegman 1979):
/// two texts of at most n bytes meet with probability (n / 7 + 2) / 2^60. Below 2^61 - 1.
inline std::uint64_t keyed_hash(std::string_view text) {
  constexpr std::size_t kChunk = 7;  // bytes that are below the prime, whatever they are
  const std::uint64_t key = detail::hash_keys().first;
  std::uint64_t hash = detail::reduce(detail::Wide{text.size() + 1} * key);
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= kChunk; at += kChunk, left -= kChunk) {
    std::uint64_t chunk = 0;
    std::memcpy(&chunk, at, kChunk);
    hash = detail::reduce(detail::Wide{hash + chunk} * key);
  }
  if (left == 0) return hash;
  return detail::reduce(detail::Wide{hash + detail::few_bytes(at, left)} * key);
}

/// A sum of its halves, each with a key of its own; two numbers meet with probability 1 / 2^60.
inline std::uint64_t keyed_hash(std::uint64_t number) {
  const detail::HashKeys& keys = detail::hash_keys();
  return detail::reduce(detail::Wide{number >> 32} * keys.first +
                        detail::Wide{number & 0xffffffff} * keys.second);
}

/// For std::unordered_map and the like.
struct KeyedHash {
  std::size_t operator()(std::string_view text) const { return keyed_hash(text); }
  std::size_t operator()(std::uint64_t number) const { return keyed_hash(number); }
};

/// The place of a hash among `places`, by its upper bits.
inline std::size_t place_of(std::uint64_t hash, std::size_t places) {
  return static_cast<std::size_t>(detail::Wide{hash << 3} * places >> 64);
}

}  // namespace ballast
