// A saved cache, and going on from it (use_cache.h). The magic number and the checksum are set
// right, the rest is hostile.
#include <zlib.h>

#include <span>

#include "ballast/cache.h"
#include "ballast/error.h"
#include "target.h"
#include "use_cache.h"

namespace {

using namespace ballast;

std::string with_checksum(std::string_view body) {
  std::string file = "BALLASTC";
  file += body.empty() || body[0] % 2 == 0 ? '\2' : '\1';
  file.append(3, '\0');
  if (!body.empty()) file += body.substr(1);
  const auto crc = static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(file.data()), file.size()));
  return file.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
}

void load(std::string_view body) {
  const std::string file = with_checksum(body);
  try {
    Cache cache = Cache::parse(std::as_bytes(std::span(file)), "fuzz");
    fuzz::go_on(cache);
  } catch (const Error&) {
  }
}

/// Changes fields: counts, positions and enumerators where they lie, to values at the edges.
std::string change_fields(const std::string& input, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string out = input;
  if (out.size() < 16 || random() % 4 == 0) return mutate(input, seed);
  for (std::uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
    // The settings lie in front; layers begin with two bytes and counts of eight.
    const std::size_t front = std::min<std::size_t>(out.size() - 8, 400);
    const std::size_t at = 1 + random() % (random() % 3 == 0 ? out.size() - 8 : front);
    if (at + 8 > out.size()) continue;
    std::uint64_t value = 0;
    std::memcpy(&value, out.data() + at, sizeof(value));
    constexpr std::uint64_t kEdges[] = {
        0,           1,           2,   127,   128,        255,        256,         65535,
        0x7fffffffu, 0x80000000u, ~0u, ~0ull, 1ull << 63, 1ull << 62, 0x7f800000u, 0x7fc00000u};
    switch (random() % 6) {
      case 0:
        ++value;
        break;
      case 1:
        --value;
        break;
      case 2:
        value = kEdges[random() % std::size(kEdges)];
        break;
      case 3:  // of another place: a count that is right elsewhere
        std::memcpy(&value, out.data() + random() % (out.size() - 8), sizeof(value));
        break;
      case 4:
        value = (value & ~0xffull) | random() % 9;
        break;
      case 5:
        value *= 2;
        break;
    }
    std::memcpy(out.data() + at, &value, random() % 2 == 0 ? 8 : random() % 2 == 0 ? 4 : 1);
  }
  return out;
}

}  // namespace

BALLAST_FUZZ_TARGET(saved_cache, load, change_fields)
