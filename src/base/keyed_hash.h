// A hash that nobody outside can foresee: for tables whose keys come from files and requests. The
// library's own hash has no key, so that a file may hold names that all meet in one place, and the
// time to read it grows with the square of their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ballast {

/// A polynomial over the field of 2^61 - 1 in a key drawn once a process (Carter and Wegman 1979):
/// two texts of at most n bytes meet with probability (n / 7 + 2) / 2^61. Below 2^61.
std::uint64_t keyed_hash(std::string_view text);
std::uint64_t keyed_hash(std::uint64_t number);

/// For std::unordered_map and the like.
struct KeyedHash {
  std::size_t operator()(std::string_view text) const { return keyed_hash(text); }
};

/// The place of a hash among `places`, by its upper bits.
inline std::size_t place_of(std::uint64_t hash, std::size_t places) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>(Wide{hash << 3} * places >> 64);
}

}  // namespace ballast
