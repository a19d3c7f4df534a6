// Damaged copies of valid files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

namespace ballast {

/// A copy with one to four wounds: bits flipped, bytes set to extremes, pieces cut, doubled or put
/// elsewhere, the end missing. The first kilobyte, where headers are, is hit most.
inline std::string mutate(const std::string& valid, std::uint32_t seed) {
  std::mt19937 rng(seed);
  auto below = [&](std::size_t n) { return n == 0 ? 0 : rng() % n; };
  std::string s = valid;
  for (std::size_t wounds = 1 + below(4); wounds > 0 && !s.empty(); --wounds) {
    std::size_t at = below(below(4) == 0 ? s.size() : std::min<std::size_t>(s.size(), 1024));
    std::size_t length = std::min<std::size_t>(1 + below(16), s.size() - at);
    switch (below(7)) {
      case 0:
        s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        break;
      case 1:
        s[at] = static_cast<char>(below(2) == 0 ? 0xff : 0x00);
        break;
      case 2:
        s[at] = static_cast<char>(below(256));
        break;
      case 3:
        s.erase(at, length);
        break;
      case 4:
        s.insert(at, s.substr(at, length));
        break;
      case 5:
        s.replace(at, length, s.substr(below(s.size()), length));
        break;
      case 6:
        s.resize(at);
        break;
    }
  }
  return s;
}

}  // namespace ballast
