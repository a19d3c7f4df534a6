// The basis that packed caches of the corpus are packed with, and a cache that fits it.
#pragma once

#include <memory>

#include "ballast/pack.h"
#include "pack/toy_basis.h"

namespace ballast::fuzz {

inline const PackCodec& small_codec() {
  static const PackCodec made = [] {
    test::ToySize size;
    size.layers = 2;
    size.kv_heads = 1;
    size.key_dim = size.value_dim = 8;
    size.directions = 12;
    size.groups = {{0}, {1}};
    return PackCodec(std::make_shared<const PackBasis>(test::toy_basis(size)));
  }();
  return made;
}

inline Cache small_cache(std::size_t tokens) {
  CacheShape shape;
  shape.layers = 2;
  shape.kv_heads = 1;
  shape.queries_per_kv_head = 2;
  shape.key_dim = shape.value_dim = 8;
  shape.logits.scale = 0.5f;
  shape.rotary = {{1.0f, 0.1f}, 1.0f, false};
  shape.recurrent = {3};
  CacheOptions options;
  options.policy = Policy::parse("exact");
  Cache cache(shape, options);
  const auto rows = test::toy_rows(small_codec().basis(), tokens);
  for (std::size_t l = 0; l < 2; ++l) {
    const auto part = [&](std::size_t begin) {
      return HeadsView{rows[l].data() + begin, ElementType::f32, tokens, 1, 8, 16, 8};
    };
    cache.forward(l, part(0), part(8), HeadsView{}, MutableHeadsView{});
  }
  cache.recurrent()->advance(0, tokens);
  cache.finish_prompt();
  return cache;
}

}  // namespace ballast::fuzz
