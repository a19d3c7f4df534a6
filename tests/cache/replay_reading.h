// A text that is read a second time, in tests of what one budget divides.
#pragma once

#include <array>
#include <string>

#include "ballast/scoring.h"
#include "cache/streams.h"

namespace ballast::test {

inline constexpr std::size_t kText = 90, kAgain = 17;

inline CacheOptions replaying(const std::string& method) {
  CacheOptions options;
  options.policy = Policy::parse(method);
  return options;
}

/// Grams as an output projection has them, B B^T; a query head below the other.
inline Matrix random_grams(std::size_t heads, std::size_t dim, std::uint64_t seed) {
  const Matrix b = random_matrix(heads * dim, 10, seed, 0.5f);
  Matrix grams(heads * dim, dim);
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) {
        for (std::size_t c = 0; c < 10; ++c) {
          grams[h * dim + i][j] += b[h * dim + i][c] * b[h * dim + j][c];
        }
      }
    }
  }
  return grams;
}

/// A text, and tokens that read it again in two parts.
struct Reading {
  Stream text = make_stream(kText, 5);
  Stream again = make_stream(2 * kAgain, 6);
  std::array<Matrix, 2> grams = {random_grams(4, 24, 1), random_grams(4, 24, 2)};
  std::vector<float> weights;

  Reading() {
    for (std::size_t t = 0; t < 2 * kAgain; ++t) weights.push_back(0.3f + 0.1f * float(t % 7));
  }
  /// Outputs of layer 1.
  Matrix replay(Cache& cache, bool identity = false) const {
    Matrix out(2 * kAgain, 4 * 24);
    for (std::size_t l = 0; l < 2; ++l) {
      scoring_of(cache).start_replay(l, identity ? ConstMatrix() : grams[l].view());
      for (std::size_t t : {std::size_t{0}, kAgain}) {
        scoring_of(cache).replay(
            l, again.keys[l].view().slice(t, kAgain), again.values[l].view().slice(t, kAgain),
            again.queries[l].view().slice(t, kAgain), std::span(weights).subspan(t, kAgain),
            out.view().slice(t, kAgain));
      }
    }
    return out;
  }
  Cache read(const std::string& method) const {
    Cache cache(text.shape, replaying(method));
    feed(cache, text, 0, kText, 32);
    return cache;
  }
  Cache compressed(const std::string& method) const {
    Cache cache = read(method);
    replay(cache);
    cache.finish_prompt();
    return cache;
  }
};

}  // namespace ballast::test
