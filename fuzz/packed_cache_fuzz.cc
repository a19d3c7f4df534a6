// A packed cache, unpacked with a small basis. The magic number and the checksum are set right, the
// rest is hostile.
#include <zlib.h>

#include <span>

#include "ballast/error.h"
#include "ballast/pack.h"
#include "small_codec.h"
#include "target.h"
#include "use_cache.h"

namespace {

using namespace ballast;

void unpack_it(std::string_view body) {
  std::string file = "BALLASTP";
  file.append({'\2', '\0', '\0', '\0'});
  file += body;
  const auto crc = static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(file.data()), file.size()));
  file.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  const auto bytes = std::as_bytes(std::span(file));
  try {
    const PackedFile packed = PackedFile::parse(bytes, "fuzz");
    if (packed.tokens > 10'000 || packed.shape.layers > 64) return;
    Cache cache = unpack(bytes, "fuzz", fuzz::small_codec());
    BALLAST_FUZZ_CHECK(cache.tokens() == packed.tokens);
    fuzz::look_at(cache);
    fuzz::attempt([&] {
      const auto again = pack(cache, fuzz::small_codec(), packed.preset, packed.note);
      BALLAST_FUZZ_CHECK(unpack(again, "again", fuzz::small_codec()).tokens() == cache.tokens());
    });
  } catch (const Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(packed_cache, unpack_it, mutate)
