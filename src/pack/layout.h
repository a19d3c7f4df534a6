// Which tokens of a text are coded together, and which nearly exactly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/pack.h"

namespace ballast {

/// All tokens are coded in blocks. What these lose of tokens [0, middle), of [end, tokens) and of
/// far tokens between is coded besides.
struct PackLayout {
  static constexpr std::size_t kBlock = PackedRows::kBlock;
  std::size_t middle = 0, end = 0, tokens = 0;

  explicit PackLayout(std::size_t tokens) : tokens(tokens) {
    middle = std::min(tokens, PackedRows::kExactFirst);
    end = std::max(middle, tokens - std::min(tokens, PackedRows::kExactLast));
  }
  /// The tokens of PackedRows::Group::exact, in its order.
  std::vector<std::uint32_t> exact(std::span<const std::uint32_t> far) const {
    std::vector<std::uint32_t> out;
    for (std::size_t t = 0; t < middle; ++t) out.push_back(static_cast<std::uint32_t>(t));
    for (std::size_t t = end; t < tokens; ++t) out.push_back(static_cast<std::uint32_t>(t));
    out.insert(out.end(), far.begin(), far.end());
    return out;
  }
  std::size_t blocks() const { return (tokens + kBlock - 1) / kBlock; }
  /// The tokens of block b: from kBlock · b on.
  std::size_t size(std::size_t b) const { return std::min(kBlock, tokens - b * kBlock); }
};

/// Of so many tokens one may be far.
inline constexpr std::size_t kFarPart = 64;

/// Elements of an exact token that have one spread, and how many such runs N elements are.
inline constexpr std::size_t kExactRun = 32;
constexpr std::size_t exact_runs(std::size_t width) { return (width + kExactRun - 1) / kExactRun; }

}  // namespace ballast
