// Small streams of keys, values and queries, and caches driven with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "ballast/scoring.h"
#include "ballast/testing/support.h"

namespace ballast::test {

/// The inputs of a cache of two layers with two KV heads, each of two query heads. Rows are tokens.
struct Stream {
  CacheShape shape;
  std::vector<Matrix> keys, values, queries;  ///< a layer each
  std::size_t tokens() const { return keys[0].rows(); }
};

/// Clustered keys with some drift, so that methods have something to find.
inline Stream make_stream(std::size_t tokens, std::uint64_t seed, float size = 1.0f) {
  Stream s;
  s.shape.layers = 2;
  s.shape.kv_heads = 2;
  s.shape.queries_per_kv_head = 2;
  s.shape.key_dim = 16;
  s.shape.value_dim = 24;
  s.shape.logits.scale = 0.25f;
  for (std::size_t l = 0; l < s.shape.layers; ++l) {
    s.keys.push_back(random_matrix(tokens, 2 * 16, seed + 3 * l, size));
    s.values.push_back(random_matrix(tokens, 2 * 24, seed + 3 * l + 1, size));
    s.queries.push_back(random_matrix(tokens, 4 * 16, seed + 3 * l + 2, size));
    Matrix centres = random_matrix(5, 2 * 16, seed + 100 + l, 2 * size);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t c = 0; c < 32; ++c) s.keys[l][t][c] += centres[t / 7 % 5][c];
    }
  }
  return s;
}

inline CacheOptions options_of(const std::string& method, Protocol protocol,
                               std::size_t expected = 0) {
  CacheOptions options;
  options.policy = Policy::parse(method);
  options.protocol = protocol;
  options.expected_tokens = expected;
  options.seed = 7;
  return options;
}

/// Scores for methods that want them with the tokens [begin, begin + count) of a layer.
inline Matrix given_scores(const Stream& s, std::size_t layer, std::size_t begin,
                           std::size_t count) {
  Matrix scores(count, s.shape.kv_heads);
  for (std::size_t t = 0; t < count; ++t) {
    for (std::size_t h = 0; h < s.shape.kv_heads; ++h) {
      scores[t][h] = std::abs(s.queries[layer][begin + t][h]);
    }
  }
  return scores;
}

/// A replay pass over the tokens before `end` that wait for one: they read themselves again.
inline void replay(Cache& cache, const Stream& s, std::size_t end) {
  constexpr std::size_t kPiece = 16;
  if (scoring_of(cache).takes_scores()) return;
  const std::size_t chunk = scoring_of(cache).chunk_tokens();
  const std::size_t begin = chunk > 0 ? end - chunk : 0;
  for (std::size_t l = 0; l < 2; ++l) {
    scoring_of(cache).start_replay(l, {});
    for (std::size_t t = begin; t < end; t += kPiece) {
      const std::size_t n = std::min(kPiece, end - t);
      Matrix unused(n, 4 * 24);
      scoring_of(cache).replay(l, s.keys[l].view().slice(t, n), s.values[l].view().slice(t, n),
                               s.queries[l].view().slice(t, n), {}, unused.view());
    }
  }
}

/// Ends the prompt after token `end`, behind a replay pass where one is due.
inline void finish_prompt(Cache& cache, const Stream& s, std::size_t end) {
  if (scoring_of(cache).needs_replay()) {
    replay(cache, s, end);
    if (scoring_of(cache).chunk_tokens() > 0) scoring_of(cache).end_chunk();
  }
  cache.finish_prompt();
}

/// Feeds tokens [begin, end) in calls of `chunk` tokens; the outputs of layer 1 side by side.
/// The prompt ends after token `prompt` (0: never).
inline Matrix feed(Cache& cache, const Stream& s, std::size_t begin, std::size_t end,
                   std::size_t chunk, std::size_t prompt = 0) {
  Matrix out(end - begin, 4 * 24), unused(end - begin, 4 * 24);
  for (std::size_t t = begin; t < end;) {
    std::size_t n = std::min(chunk, end - t);
    if (prompt > t) n = std::min(n, prompt - t);
    for (std::size_t l = 0; l < 2; ++l) {
      MutableMatrix part = (l == 1 ? out : unused).view().slice(t - begin, n);
      cache.forward(l, s.keys[l].view().slice(t, n), s.values[l].view().slice(t, n),
                    s.queries[l].view().slice(t, n), part);
    }
    t += n;
    if (t == prompt) cache.finish_prompt();
  }
  return out;
}

/// The same for any method: with scores where it wants them with the tokens, with replay passes and
/// divisions of a global budget when they are due.
inline Matrix read(Cache& cache, const Stream& s, std::size_t begin, std::size_t end,
                   std::size_t chunk, std::size_t prompt = 0) {
  Matrix out(end - begin, 4 * 24);
  for (std::size_t t = begin; t < end;) {
    if (scoring_of(cache).chunk_room() == 0) {
      replay(cache, s, t);
      scoring_of(cache).end_chunk();
    }
    std::size_t n = std::min({chunk, end - t, scoring_of(cache).chunk_room()});
    if (prompt > t) n = std::min(n, prompt - t);
    const Matrix part = feed(cache, s, t, t + n, n);
    std::copy(part.data(), part.data() + n * part.cols(), out[t - begin].data());
    for (std::size_t l = 0; scoring_of(cache).takes_scores() && l < 2; ++l) {
      scoring_of(cache).note_scores(l, given_scores(s, l, t, n).view());
    }
    t += n;
    if (t == prompt) finish_prompt(cache, s, t);
  }
  return out;
}

inline bool same_bits(const Matrix& a, const Matrix& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         std::equal(a.data(), a.data() + a.rows() * a.cols(), b.data());
}

}  // namespace ballast::test
