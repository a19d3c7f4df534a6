#include "serve/scheduling/pace.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

#include "ballast/engine/chat.h"
#include "ballast/engine/generate.h"
#include "ballast/scoring.h"
#include "serve/client.h"

namespace ballast::test {
namespace {

using serve::ChunkPace;
using serve::kPatience;
using serve::TurnPace;

/// Turns that so many pieces of so many seconds are divided into, and the longest of these.
std::pair<int, double> turns(int pieces, double seconds) {
  double now = 100;
  TurnPace pace([&] { return now; });
  int count = 1;
  double began = now, longest = 0;
  for (int i = 0; i < pieces; ++i) {
    now += seconds;
    longest = std::max(longest, now - began);
    if (!pace.over()) continue;
    now += 7;  // others work
    pace.begin();
    began = now;
    ++count;
  }
  return {count, longest};
}

TEST(TurnPace, ATurnIsAsManyPiecesAsTheTimeHolds) {
  EXPECT_EQ(turns(1000, 0.001).first, 6);  // of 200, but for rounding
  EXPECT_EQ(turns(30, 0.09).first, 16);    // two each
  EXPECT_EQ(turns(30, 0.11).first, 31);    // one each
  EXPECT_EQ(turns(30, 5).first, 31);
  for (double piece : {0.0001, 0.001, 0.03, 0.09, 0.11, 0.19}) {
    EXPECT_LE(turns(1000, piece).second, kPatience + 1e-9) << piece;
  }
}

TEST(ChunkPace, AChunkTakesAsLongAsOthersMayWait) {
  ChunkPace pace;
  EXPECT_EQ(pace.next(false), ChunkPace::kMost);
  EXPECT_EQ(pace.next(true), ChunkPace::kLeast);  // nothing is known
  pace.took(256, 2.56);
  EXPECT_EQ(pace.next(true), 20u);
  EXPECT_EQ(pace.next(false), ChunkPace::kMost);
  pace.took(1, 100);
  EXPECT_EQ(pace.next(true), 20u);
  pace.took(4, 8);
  EXPECT_EQ(pace.next(true), ChunkPace::kLeast);
  pace.took(256, 0);
  EXPECT_EQ(pace.next(true), ChunkPace::kMost);
}

TEST(Replay, TellsAndStopsBetweenLayers) {
  const TestServer server;  // for its tokenizer
  const Model& model = TestServer::mini();
  std::string text;
  for (int i = 0; i < 80; ++i) text += fmt::format("record {} is {}.\n", i, i * 7919 % 9973);
  CacheOptions cache;
  cache.policy = Policy::parse("replay:bytes=1/4");
  Sequence sequence(model, cache);
  Engine engine(model);
  const std::vector<Token> tokens = server.tokenizer().encode(text, {});
  engine.prefill(sequence, tokens, {.finish_prompt = false});
  std::map<std::size_t, std::size_t> calls;  // by the tokens read again
  ReplayOptions options{replay_wording(server.tokenizer(), false)};
  options.progress = [&](std::size_t done, std::size_t) { return ++calls[done] > 0; };
  ASSERT_TRUE(engine.replay(sequence, options));
  const std::size_t layers = model.config().layers, chunks = calls.size() - 1;
  EXPECT_GT(chunks, 1u);
  EXPECT_EQ(calls[0], 2 * layers);  // what it prepares for each, and the first chunk
  for (const auto& [done, count] : calls) {
    if (done > 0) {
      EXPECT_EQ(count, done == tokens.size() ? 1 : 1 + layers) << done;
    }
  }

  // Stopped between two layers, it can be begun anew, with the same result.
  const auto scores = [](const Sequence& s) {
    const std::span<const float> all = scoring_of(s.cache()).scores(0, 0);
    return std::vector<float>(all.begin(), all.end());
  };
  const std::vector<float> expected = scores(sequence);
  Sequence again(model, cache);
  engine.prefill(again, tokens, {.finish_prompt = false});
  std::size_t left = 3 * layers + 1;
  options.progress = [&](std::size_t, std::size_t) { return --left > 0; };
  EXPECT_FALSE(engine.replay(again, options));
  EXPECT_EQ(left, 0u);
  options.progress = {};
  ASSERT_TRUE(engine.replay(again, options));
  EXPECT_EQ(scores(again), expected);
}

TEST(Replay, OfAStreamTellsAndStopsBetweenLayers) {
  const TestServer server;  // for its tokenizer
  const Model& model = TestServer::mini();
  std::string text;
  for (int i = 0; i < 20; ++i) text += fmt::format("record {} is {}.\n", i, i * 7919 % 9973);
  std::vector<Token> tokens = server.tokenizer().encode(text, {});
  constexpr std::size_t kChunk = 32;
  tokens.resize(5 * kChunk);
  CacheOptions cache;
  cache.policy = Policy::parse("replay:bytes=64K,chunk=32");
  cache.protocol = Protocol::stream;
  Engine engine(model);
  const ReplayWording wording = replay_wording(server.tokenizer(), false);
  engine.set_replay_wording(wording);
  Sequence whole(model, cache), parts(model, cache);
  engine.prefill(whole, tokens, {.finish_prompt = false});

  for (std::size_t begin = 0; begin < tokens.size(); begin += kChunk) {
    engine.prefill(parts, std::span(tokens).subspan(begin, kChunk), {.finish_prompt = false});
    ASSERT_EQ(scoring_of(parts.cache()).chunk_room(), 0u);
    if (begin + kChunk == tokens.size()) break;  // as `whole`, whose next token would come first
    std::size_t left = 6;
    ReplayOptions options{wording, [&](std::size_t, std::size_t) { return --left > 0; }};
    EXPECT_FALSE(engine.replay(parts, options));  // it begins anew
    std::size_t calls = 0, ends = 0;
    options.progress = [&](std::size_t done, std::size_t total) {
      ends += done == total;
      return ++calls > 0;
    };
    ASSERT_TRUE(engine.replay(parts, options));
    EXPECT_EQ(calls, 2 * model.config().layers + 1);
    EXPECT_EQ(ends, 1u);
    EXPECT_EQ(scoring_of(parts.cache()).chunk_room(), kChunk);
  }
  EXPECT_EQ(parts.cache().to_bytes(), whole.cache().to_bytes());
}

}  // namespace
}  // namespace ballast::test
