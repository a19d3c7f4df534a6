// What the tests of caches share.
#pragma once

#include <zlib.h>

#include <cstring>
#include <string>

#include "ballast/testing/streams.h"

namespace ballast::test {

/// Gives the bytes of a saved cache the checksum that fits them.
inline void seal_saved_cache(std::string& bytes) {
  const std::size_t body = bytes.size() - sizeof(std::uint32_t);
  const auto crc = static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes.data()), body));
  std::memcpy(bytes.data() + body, &crc, sizeof(crc));
}

}  // namespace ballast::test
