// A chunk of a server's cache, decoded by a small codec. The magic number, the version and the
// checksum are set right, the rest is hostile.
#include <zlib.h>

#include <span>

#include "ballast/codec.h"
#include "ballast/error.h"
#include "target.h"

namespace {

using namespace ballast;

void decode_it(std::string_view body) {
  const auto crc = static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(body.data()), body.size()));
  std::string chunk = "BALLASTK";
  chunk.append({'\1', '\0', '\0', '\0'});
  chunk.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  chunk += body;
  const auto bytes = std::as_bytes(std::span(chunk));
  CacheShape shape;
  shape.layers = shape.kv_heads = 2;
  shape.key_dim = shape.value_dim = 8;
  try {
    const std::size_t tokens = Codec::inspect(bytes).tokens;
    if (tokens > 1000) return;
    std::vector<float> memory(4 * tokens * 16);
    std::vector<MutableHeadsView> views;
    for (std::size_t i = 0; i < 4; ++i) {
      views.push_back(MutableHeadsView::token_major(memory.data() + i * tokens * 16,
                                                    ElementType::f32, tokens, 2, 8));
    }
    Codec(shape, "fast-3").decode(bytes, std::span(views).first(2), std::span(views).subspan(2));
    for (float x : memory) BALLAST_FUZZ_CHECK(x - x == 0);  // finite
  } catch (const Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(chunk, decode_it, mutate)
