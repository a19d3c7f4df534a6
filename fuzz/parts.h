// Inputs of several files: each with its size as 32 bits before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "formats/mutate.h"

namespace ballast::fuzz {

/// `count` parts; those that the input has no bytes for are empty. The last takes all that is left.
inline std::vector<std::string_view> parts_of(std::string_view input, std::size_t count) {
  std::vector<std::string_view> parts(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t size = 0;
    if (input.size() < sizeof(size)) break;
    std::memcpy(&size, input.data(), sizeof(size));
    input.remove_prefix(sizeof(size));
    parts[i] = input.substr(0, i + 1 == count ? input.size() : size);
    input.remove_prefix(parts[i].size());
  }
  return parts;
}

template <typename Text>
std::string join_parts(const std::vector<Text>& parts) {
  std::string out;
  for (const Text& part : parts) {
    const auto size = static_cast<std::uint32_t>(part.size());
    out.append(reinterpret_cast<const char*>(&size), sizeof(size)) += part;
  }
  return out;
}

/// Damages one of `count` parts and leaves the sizes right.
inline std::string mutate_part(const std::string& input, std::uint32_t seed, std::size_t count) {
  std::mt19937 random(seed);
  const auto parts = parts_of(input, count);
  std::vector<std::string> out(parts.begin(), parts.end());
  std::vector<std::size_t> filled;
  for (std::size_t i = 0; i < count; ++i) {
    if (!out[i].empty()) filled.push_back(i);
  }
  if (filled.empty() || random() % 8 == 0) return mutate(input, seed);
  std::string& part = out[filled[random() % filled.size()]];
  part = random() % 32 == 0 ? "" : mutate(part, seed);
  return join_parts(out);
}

}  // namespace ballast::fuzz
