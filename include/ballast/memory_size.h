// How much memory a cache may take, as people write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

/// An amount of memory for a whole cache, all layers and heads.
///
///   1/8   0.125   12%     a share of the exact bf16 cache of the tokens read
///   256M  1.5G  4096B     bytes; K, M and G are powers of 1024
///   40K/token             bytes for each token read
struct MemorySize {
  enum class Unit : std::uint8_t { share, bytes, per_token };
  Unit unit = Unit::share;
  double amount = 0;

  /// Throws Error on what is none of these, on amounts that are not above 0, on shares above 1, and
  /// on a number without a unit (`1`): it could be a share or bytes.
  static MemorySize parse(std::string_view text);
  /// Whether bytes() needs to know the length of the text.
  bool needs_length() const { return unit != Unit::bytes; }
  /// In bytes, for a text of `tokens` tokens whose exact bf16 cache takes `exact` bytes; rounded
  /// down.
  std::size_t bytes(std::size_t tokens, std::size_t exact) const;
};

}  // namespace ballast
