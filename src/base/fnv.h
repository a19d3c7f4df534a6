// FNV-1a: a hash that names things in files. For tables see keyed_hash.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ballast {

class Fnv {
 public:
  void add(std::span<const std::byte> bytes) {
    for (std::byte b : bytes) {
      state_ = (state_ ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
    }
  }
  void add(std::uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace ballast
