// Goes on with a cache that hostile bytes gave: it is asked, fed, read again, summarised, copied,
// cut back, saved and loaded. What it refuses, it refuses with an Error.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ballast/cache.h"
#include "ballast/error.h"
#include "ballast/recording.h"
#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "memory_file.h"
#include "target.h"

namespace ballast::fuzz {

template <typename Action>
void attempt(Action&& action) {
  try {
    action();
  } catch (const Error&) {
  }
}

inline Matrix numbers(std::size_t rows, std::size_t cols, std::size_t seed) {
  Matrix m(rows, cols);
  for (std::size_t i = 0; i < rows * cols; ++i)
    m.data()[i] = static_cast<float>((i * 7 + seed * 3 + i / 5) % 11) / 4 - 1;
  return m;
}

/// The rows of some tokens for every layer of a cache.
struct Rows {
  Rows(const CacheShape& s, std::size_t tokens, std::size_t seed)
      : keys(numbers(tokens, s.kv_heads * s.key_dim, seed)),
        values(numbers(tokens, s.kv_heads * s.value_dim, seed + 1)),
        queries(numbers(tokens, s.kv_heads * s.queries_per_kv_head * s.key_dim, seed + 2)),
        out(tokens, s.kv_heads * s.queries_per_kv_head * s.value_dim) {}
  Matrix keys, values, queries, out;
};

inline void feed(Cache& cache, std::size_t tokens, std::size_t seed) {
  tokens = std::min(tokens, scoring_of(cache).chunk_room());
  Rows rows(cache.shape(), tokens, seed);
  for (std::size_t l = 0; l < cache.shape().layers; ++l) {
    cache.forward(l, rows.keys.view(), rows.values.view(), rows.queries.view(), rows.out.view());
  }
}

inline void look_at(const Cache& cache) {
  for (std::size_t l = 0; l < cache.shape().layers; ++l) {
    for (std::size_t h = 0; h < cache.shape().kv_heads; ++h) {
      (void)cache.kept(l, h);
      (void)cache.segments(l, h);
      (void)scoring_of(cache).scores(l, h);
      (void)latest_attention(cache, l, h);
    }
  }
  (void)reports_of(cache);
  BALLAST_FUZZ_CHECK(cache.bytes().used() <= cache.bytes().total());
}

/// The second reading that a method waits for, in calls of its chunk=.
inline void read_again(Cache& cache) {
  const CacheShape& s = cache.shape();
  const bool stream = cache.options().protocol == Protocol::stream;
  const std::size_t n = stream ? scoring_of(cache).chunk_tokens() : cache.tokens();
  if (n > 1000) return;
  const Matrix grams = numbers(s.kv_heads * s.queries_per_kv_head * s.value_dim, s.value_dim, 5);
  const auto chunk = static_cast<std::size_t>(cache.options().policy.integer("chunk"));
  for (std::size_t l = 0; l < s.layers; ++l)
    scoring_of(cache).start_replay(l, l % 2 == 0 ? grams.view() : ConstMatrix{});
  for (std::size_t t = 0; t < n; t += chunk) {
    Rows rows(s, std::min(chunk, n - t), t);
    const std::vector<float> weights(rows.keys.rows(), 0.5f);
    for (std::size_t l = 0; l < s.layers; ++l) {
      scoring_of(cache).replay(
          l, rows.keys.view(), rows.values.view(), rows.queries.view(),
          t % 2 == 0 ? std::span<const float>(weights) : std::span<const float>(), rows.out.view());
    }
  }
  attempt([&] {
    Rows rows(s, 3, 1);
    for (std::size_t l = 0; l < s.layers; ++l) {
      scoring_of(cache).replay_question(l, rows.keys.view(), rows.values.view(),
                                        rows.queries.view(), {}, rows.out.view());
    }
  });
  if (stream) scoring_of(cache).end_chunk();
}

/// Methods that a fork of an exact cache may ask for.
constexpr std::array kForks = {"h2o:budget=8",        "snapkv:budget=12,window=4",
                               "balancekv:budget=10", "expected-attention:budget=9",
                               "replay:bytes=1/2",    "attention-matching:budget=12,observe=4",
                               "uniform:bytes=1/4",   "pyramidkv:budget=10,observe=2"};

inline void copy_and_cut(const Cache& cache) {
  const std::size_t tokens = cache.tokens();
  Cache copy = cache.clone();
  BALLAST_FUZZ_CHECK(copy.tokens() == tokens && copy.bytes().used() == cache.bytes().used());
  attempt([&] { (void)answer_latest(copy, cache, 0, 0); });
  attempt([&] { copy.reserve(tokens + 20); });
  attempt([&] { copy.truncate(tokens - std::min<std::size_t>(tokens, 2)); });
  attempt([&] { feed(copy, 2, 4); });
  look_at(copy);
  const Policy fork = Policy::parse(kForks[tokens % kForks.size()]);
  attempt([&] {
    Cache forked = fork_of(cache, fork, 1);
    forked.finish_prompt();
    feed(forked, 2, 1);
    look_at(forked);
  });
  if (tokens > 10'000) return;
  attempt([&] {
    const std::vector<float> scores(tokens, 0.5f);
    Cache scored = cache.clone();
    for (std::size_t l = 0; l < cache.shape().layers; ++l) {
      for (std::size_t h = 0; h < cache.shape().kv_heads; ++h)
        scoring_of(scored).set_scores(l, h, scores);
    }
    scored.finish_prompt();
    scoring_of(scored).discard_replay();
  });
}

/// What is written is read, to the byte.
inline void save_and_load(const Cache& cache) {
  const std::vector<std::byte> bytes = cache.to_bytes("note");
  BALLAST_FUZZ_CHECK(Cache::parse(bytes, "again").to_bytes("note") == bytes);
  if (bytes[bytes.size() / 2] != std::byte{0}) return;  // files take longer than all of the rest
  const TempFile file("cache", "old");
  cache.save(file.path(), "note");
  std::string note;
  BALLAST_FUZZ_CHECK(Cache::load(file.path(), &note).to_bytes("note") == bytes && note == "note");
}

inline void go_on(Cache& cache) {
  static const auto pool = std::make_shared<ThreadPool>(1);
  set_host(cache, pool, nullptr);
  look_at(cache);
  attempt([&] { save_and_load(cache); });
  const CacheShape& s = cache.shape();
  if (s.layers * s.kv_heads * s.queries_per_kv_head > 64 || s.key_dim + s.value_dim > 512) return;
  if (cache.entries() > 10'000) return;  // seconds, which no limit is broken by
  copy_and_cut(cache);
  // Fitting values takes milliseconds at every step: few tokens then.
  const MethodInfo& info = cache.options().policy.info();
  const std::size_t many = info.needs.fits_values ? 3 : 40;
  for (std::size_t step = 0; step < 6; ++step) {
    attempt([&] { feed(cache, step % 3 == 2 ? many : 1, step); });
    if (scoring_of(cache).chunk_room() == 0) attempt([&] { read_again(cache); });
  }
  look_at(cache);
  if (scoring_of(cache).needs_replay()) {
    attempt([&] { save_and_load(cache); });
    attempt([&] { read_again(cache); });
  }
  attempt([&] {
    cache.finish_prompt();
    feed(cache, 3, 9);
    Cache other = cache.clone();
    Rows a(s, 1, 1), b(s, 1, 2);
    const std::size_t heads = s.kv_heads * s.queries_per_kv_head;
    const auto item = [&](Cache& one, Rows& rows) -> BatchItem {
      return {&one, HeadsView::of(rows.keys.view(), s.kv_heads),
              HeadsView::of(rows.values.view(), s.kv_heads),
              HeadsView::of(rows.queries.view(), heads),
              MutableHeadsView::of(rows.out.view(), heads)};
    };
    const BatchItem items[] = {item(cache, a), item(other, b)};
    for (std::size_t l = 0; l < s.layers; ++l) forward_batch(l, items);
  });
  look_at(cache);
  attempt([&] { save_and_load(cache); });
}

}  // namespace ballast::fuzz
