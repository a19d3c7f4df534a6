#include "ballast/codec.h"

#include <vector>

#include "ballast.h"
#include "ballast/pack.h"
#include "bindings/c/cache.h"
#include "bindings/c/guard.h"

struct ballast_codec {
  ballast::Codec codec;
};

namespace ballast::c {
namespace {

template <typename View>
std::vector<View> views_of(const ballast_codec& codec, const ballast_heads* heads,
                           const char* name) {
  std::vector<View> out;
  given(heads, name);
  for (std::size_t l = 0; l < codec.codec.shape().layers; ++l) {
    out.push_back(view_of(heads + l, name));
  }
  return out;
}

}  // namespace
}  // namespace ballast::c

using namespace ballast;     // NOLINT
using namespace ballast::c;  // NOLINT

ballast_status ballast_codec_new(const ballast_cache_shape* shape, const char* preset,
                                 const char* model, const char* basis, ballast_codec** out) {
  return guarded([&] {
    given(out, "out");
    std::shared_ptr<const PackBasis> loaded;
    if (basis != nullptr) loaded = std::make_shared<const PackBasis>(PackBasis::load(basis));
    *out = new ballast_codec{Codec(shape_of(shape), preset == nullptr ? "fast-4" : preset,
                                   model == nullptr ? "" : model, std::move(loaded))};
  });
}

void ballast_codec_free(ballast_codec* codec) { delete codec; }

ballast_status ballast_codec_bound(const ballast_codec* codec, size_t tokens, size_t* bytes) {
  return guarded([&] { given(bytes, "bytes") = given(codec, "codec").codec.bound(tokens); });
}

ballast_status ballast_codec_encode(const ballast_codec* codec, const ballast_heads* keys,
                                    const ballast_heads* values, int64_t position, void* out,
                                    size_t capacity, size_t* bytes) {
  return guarded([&] {
    given(codec, "codec");
    given(bytes, "bytes");
    require(out != nullptr, "out is NULL");
    *bytes = codec->codec.encode(views_of<HeadsView>(*codec, keys, "keys"),
                                 views_of<HeadsView>(*codec, values, "values"),
                                 {static_cast<std::byte*>(out), capacity}, position);
  });
}

ballast_status ballast_codec_decode(const ballast_codec* codec, const void* chunk, size_t bytes,
                                    const ballast_heads* keys, const ballast_heads* values) {
  return guarded([&] {
    given(codec, "codec");
    require(chunk != nullptr, "chunk is NULL");
    codec->codec.decode({static_cast<const std::byte*>(chunk), bytes},
                        views_of<MutableHeadsView>(*codec, keys, "keys"),
                        views_of<MutableHeadsView>(*codec, values, "values"));
  });
}
