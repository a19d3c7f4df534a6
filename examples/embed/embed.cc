// Ballast inside another engine: give it each layer's keys, values and queries, take back the
// attention, and let it keep the cache small.
#include <ballast/cache.h>
#include <ballast/error.h>

#include <cmath>
#include <cstdio>
#include <random>

int main() try {
  // A small model: 2 layers, 2 KV heads of dimension 64 that 4 query heads share.
  ballast::CacheShape shape;
  shape.layers = 2;
  shape.kv_heads = 2;
  shape.queries_per_kv_head = 2;
  shape.key_dim = shape.value_dim = 64;
  shape.logits.scale = 1.0f / std::sqrt(64.0f);

  ballast::CacheOptions options;
  options.policy = ballast::Policy::parse("balancekv:rate=0.25");
  options.key_type = options.value_type = ballast::StorageType::bf16;
  ballast::Cache cache(shape, options);

  // Stand-ins for the projections of a prompt of 2,000 tokens, and of one generated token.
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  auto projections = [&](std::size_t tokens, std::size_t heads) {
    ballast::Matrix m(tokens, heads * 64);
    for (std::size_t i = 0; i < m.rows() * m.cols(); ++i) m.data()[i] = normal(random);
    return m;
  };
  auto step = [&](std::size_t tokens) {
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      ballast::Matrix keys = projections(tokens, 2), values = projections(tokens, 2);
      ballast::Matrix queries = projections(tokens, 4), out(tokens, 4 * 64);
      cache.forward(layer, keys.view(), values.view(), queries.view(), out.view());
    }
  };

  step(2000);
  std::printf("prompt:  %zu tokens, %zu entries a head, %zu bytes\n", cache.tokens(),
              cache.entries(), cache.bytes().total());
  cache.finish_prompt();
  step(1);
  std::printf("summary: %zu tokens, %zu entries a head, %zu bytes\n", cache.tokens(),
              cache.entries(), cache.bytes().total());
  return 0;
} catch (const ballast::Error& error) {
  std::fprintf(stderr, "embed: %s\n", error.what());
  return 1;
}
