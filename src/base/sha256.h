// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ballast {

class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  /// Of all bytes added, in lower-case hexadecimal. Call it once.
  std::string finish();

 private:
  void block(const std::byte* bytes);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};  ///< the last bytes, fewer than a block
  std::uint64_t count_ = 0;           ///< bytes
};

}  // namespace ballast
