// Tokens that are taken back.
#include "cache/streams.h"

namespace ballast::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Truncate : public testing::Test {
 protected:
  /// Feeds 60 tokens, keeps `kept`, feeds others; compares with a cache that saw only these.
  void expect_as_if_never_seen(const CacheOptions& options, std::size_t kept, std::size_t prompt) {
    Cache cache(s_.shape, options), never(s_.shape, options);
    feed(cache, s_, 0, 60, 20, prompt);
    cache.truncate(kept);
    EXPECT_EQ(cache.tokens(0), kept);
    EXPECT_EQ(cache.tokens(1), kept);
    feed(never, s_, 0, kept, 20, prompt);
    EXPECT_EQ(cache.clone().to_bytes(), never.clone().to_bytes()) << kept;
    EXPECT_TRUE(same_bits(feed(cache, other_, kept, 80, 7), feed(never, other_, kept, 80, 7)));
  }
  std::string error(const char* method, Protocol protocol, std::size_t tokens, std::size_t prompt) {
    Cache cache(s_.shape, options_of(method, protocol)), same = cache.clone();
    feed(cache, s_, 0, 60, 20, prompt);
    feed(same, s_, 0, 60, 20, prompt);
    const std::string message = error_of([&] { cache.truncate(tokens); });
    EXPECT_EQ(cache.clone().to_bytes(), same.clone().to_bytes());
    return message;
  }

  Stream s_ = make_stream(80, 1), other_ = make_stream(80, 2);
};

TEST_F(Truncate, TokensAreAsIfNeverSeen) {
  for (std::size_t kept : {0, 1, 33, 59, 60}) {
    expect_as_if_never_seen(options_of("exact", Protocol::prefill), kept, 0);
    expect_as_if_never_seen(options_of("exact", Protocol::stream), kept, 0);
    expect_as_if_never_seen(options_of("balancekv:budget=70", Protocol::stream), kept, 0);
    expect_as_if_never_seen(options_of("snapkv:budget=70,observe=60", Protocol::stream), kept, 0);
  }
  CacheOptions rolling = options_of("exact", Protocol::prefill);
  rolling.positions = Positions::rolling;
  expect_as_if_never_seen(rolling, 33, 0);
}

TEST_F(Truncate, GeneratedTokensCanGoOnceThePromptIsSummarised) {
  const CacheOptions options = options_of("uniform:budget=24,sink=4,window=8", Protocol::prefill);
  for (std::size_t kept : {40, 41, 59}) expect_as_if_never_seen(options, kept, 40);
  EXPECT_THAT(error("uniform:budget=24,sink=4,window=8", Protocol::prefill, 39, 40),
              AllOf(HasSubstr("uniform"), HasSubstr("at 40 tokens"), HasSubstr("39")));
}

TEST_F(Truncate, WhatCannotBeTakenBackIsNamed) {
  EXPECT_THAT(error("exact", Protocol::prefill, 61, 0),
              AllOf(HasSubstr("layer 0 has 60 tokens"), HasSubstr("61")));
  EXPECT_THAT(
      error("streaming-llm:budget=24", Protocol::stream, 59, 0),
      AllOf(HasSubstr("streaming-llm"), HasSubstr("leave the window"), HasSubstr("clone()")));
  EXPECT_THAT(error("h2o:budget=70", Protocol::stream, 59, 0),
              AllOf(HasSubstr("h2o"), HasSubstr("attention statistics")));
  EXPECT_THAT(error("snapkv:budget=70,observe=8", Protocol::stream, 59, 0),
              AllOf(HasSubstr("snapkv"), HasSubstr("attention statistics")));
}

TEST_F(Truncate, AStepThatFailedInOneLayerIsUndone) {
  Cache cache(s_.shape, options_of("exact", Protocol::prefill));
  Stream bad = make_stream(80, 1);
  bad.keys[1][45][0] = std::numeric_limits<float>::infinity();
  feed(cache, bad, 0, 40, 10);
  EXPECT_THAT(error_of([&] { feed(cache, bad, 40, 50, 10); }), HasSubstr("keys"));
  EXPECT_EQ(cache.tokens(0), 50u);
  cache.truncate(40);
  Cache never(s_.shape, options_of("exact", Protocol::prefill));
  feed(never, s_, 0, 40, 10);
  EXPECT_TRUE(same_bits(feed(cache, s_, 40, 80, 10), feed(never, s_, 40, 80, 10)));
}

}  // namespace
}  // namespace ballast::test
