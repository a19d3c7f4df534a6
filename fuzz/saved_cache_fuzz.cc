// A saved cache: the first 12 bytes and the checksum are set right, the rest is hostile.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ballast/cache.h"
#include "ballast/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> file = {'B', 'A', 'L', 'L', 'A', 'S', 'T', 'C', 1, 0, 0, 0};
  file.insert(file.end(), data, data + size);
  const auto crc =
      static_cast<std::uint32_t>(crc32_z(crc32_z(0, nullptr, 0), file.data(), file.size()));
  file.resize(file.size() + sizeof(crc));
  std::memcpy(file.data() + file.size() - sizeof(crc), &crc, sizeof(crc));
  try {
    ballast::Cache cache = ballast::Cache::parse(std::as_bytes(std::span(file)), "fuzz");
    (void)cache.bytes();
    (void)cache.kept(0, 0);
  } catch (const ballast::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
