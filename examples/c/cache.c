/* Ballast inside an engine written in C: give it each layer's keys, values and queries, take back
 * the attention, and let it keep the cache small.
 *
 *   cc -std=c99 cache.c -o cache $(pkg-config --cflags --libs ballast) -lm */
#include <ballast.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 2, KV_HEADS = 2, GROUP = 2, DIM = 64, PROMPT = 2000 };

/* Stand-ins for the projections of a model: normal numbers. */
static double uniform(void) { return (rand() + 1.0) / (RAND_MAX + 2.0); }
static void fill(float *out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = (float)(sqrt(-2.0 * log(uniform())) * cos(6.283185307 * uniform()));
  }
}

static void check(ballast_status status) {
  if (status == BALLAST_OK) return;
  fprintf(stderr, "cache: %s\n", ballast_last_error());
  exit(1);
}

/* Feeds tokens to all layers; in a replay pass they look at the cache and are not kept. */
static void feed(ballast_cache *cache, size_t tokens, bool replay) {
  size_t rows = tokens * KV_HEADS * DIM;
  float *keys = malloc(rows * sizeof(float));
  float *values = malloc(rows * sizeof(float));
  float *queries = malloc(rows * GROUP * sizeof(float));
  float *out = malloc(rows * GROUP * sizeof(float));
  if (!keys || !values || !queries || !out) exit(1);
  for (size_t layer = 0; layer < LAYERS; ++layer) {
    fill(keys, rows);
    fill(values, rows);
    fill(queries, rows * GROUP);
    if (replay) {
      check(ballast_cache_replay(cache, layer, tokens, keys, values, queries, NULL, out));
      continue;
    }
    ballast_heads k = ballast_heads_token_major(keys, BALLAST_F32, tokens, KV_HEADS, DIM);
    ballast_heads v = ballast_heads_token_major(values, BALLAST_F32, tokens, KV_HEADS, DIM);
    ballast_heads q = ballast_heads_token_major(queries, BALLAST_F32, tokens, KV_HEADS * GROUP, DIM);
    ballast_heads o = ballast_heads_token_major(out, BALLAST_F32, tokens, KV_HEADS * GROUP, DIM);
    check(ballast_cache_forward(cache, layer, &k, &v, &q, &o));
  }
  free(keys);
  free(values);
  free(queries);
  free(out);
}

static void report(const char *when, const ballast_cache *cache) {
  ballast_cache_bytes bytes = {sizeof(bytes), 0, 0, 0, 0, 0, 0, 0, 0};
  check(ballast_cache_get_bytes(cache, &bytes));
  printf("%s: %zu tokens, %zu entries a head, %zu bytes\n", when, ballast_cache_tokens(cache, 0),
         ballast_cache_entries(cache, 0), bytes.total);
}

int main(void) {
  ballast_cache_shape shape = ballast_cache_default_shape();
  shape.layers = LAYERS;
  shape.kv_heads = KV_HEADS;
  shape.queries_per_kv_head = GROUP;
  shape.key_dim = DIM;
  ballast_cache_params params = ballast_cache_default_params();
  params.bytes = "1/8"; /* of the exact cache */

  ballast_cache *cache;
  check(ballast_cache_new(&shape, &params, &cache));
  feed(cache, PROMPT, false);
  report("prompt", cache);
  if (ballast_cache_needs_replay(cache)) {
    for (size_t layer = 0; layer < LAYERS; ++layer) {
      check(ballast_cache_start_replay(cache, layer, NULL)); /* NULL: better with W_O W_O^T */
    }
    feed(cache, PROMPT, true); /* of an engine: the prompt once more */
  }
  check(ballast_cache_finish_prompt(cache));
  feed(cache, 1, false);
  report("summary", cache);
  ballast_cache_free(cache);
  return 0;
}
