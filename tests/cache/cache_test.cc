#include "ballast/cache.h"

#include "ballast/threads.h"
#include "cache/streams.h"
#include "paths.h"
#include "process_threads.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Cache, ExactIsCausalAttention) {
  Stream s = make_stream(70, 3);
  Cache cache(s.shape, options_of("exact", Protocol::prefill));
  Matrix out = feed(cache, s, 0, 70, 9, 40);
  for (std::size_t t : {0, 1, 8, 9, 39, 40, 69}) {
    for (std::size_t q = 0; q < 4; ++q) {
      std::vector<PlainEntry> entries;
      for (std::size_t i = 0; i <= t; ++i) {
        auto key = s.keys[1][i].subspan(q / 2 * 16, 16);
        auto value = s.values[1][i].subspan(q / 2 * 24, 24);
        entries.push_back({{key.begin(), key.end()}, {value.begin(), value.end()}});
      }
      auto expected = naive_attention(entries, s.queries[1][t].subspan(q * 16, 16), 0.25);
      EXPECT_LT(relative_error(out[t].subspan(q * 24, 24), expected), 1e-5);
    }
  }
}

TEST(Cache, RunsItsHeadsOnItsPool) {
  Stream s = make_stream(200, 3);
  CacheOptions options = options_of("exact", Protocol::prefill);
  Cache shared(s.shape, options);
  const Matrix expected = feed(shared, s, 0, 200, 100);
  const std::size_t before = process_threads();
  {
    options.pool = std::make_shared<ThreadPool>(2);
    Cache cache(s.shape, options);
    EXPECT_TRUE(same_bits(feed(cache, s, 0, 200, 100), expected));
    EXPECT_EQ(process_threads(before + 1), before + 1);
    EXPECT_EQ(fork_of(cache, Policy::parse("local:budget=20"), 1).options().pool, options.pool);
  }
  options.pool = nullptr;
  EXPECT_EQ(process_threads(before), before);
  const auto pool = std::make_shared<ThreadPool>(2);
  Cache loaded = Cache::parse(Cache(s.shape, options).to_bytes(), "a copy");
  set_host(loaded, pool, nullptr);
  EXPECT_TRUE(same_bits(feed(loaded, s, 0, 200, 100), expected));
  EXPECT_EQ(process_threads(before + 1), before + 1);
}

TEST(Cache, SinkSummaryAndWindowAreWhereTheyBelong) {
  Stream s = make_stream(100, 3);
  Cache cache(s.shape, options_of("streaming-llm:budget=20,sink=4", Protocol::stream));
  feed(cache, s, 0, 100, 10);
  std::vector<Position> positions;
  for (const KeptEntry& kept : cache.kept(0, 0)) positions.push_back(kept.position);
  std::vector<Position> expected = {0, 1, 2, 3};
  for (Position p = 84; p < 100; ++p) expected.push_back(p);
  EXPECT_EQ(positions, expected);
}

TEST(Cache, PrefillKeepsWhatIsGeneratedUnlessToldToEvict) {
  Stream s = make_stream(200, 3);
  Cache keeps(s.shape, options_of("local:budget=30,generated=keep", Protocol::prefill));
  feed(keeps, s, 0, 200, 50, 100);
  EXPECT_EQ(keeps.entries(), 130u);
  Cache evicts(s.shape, options_of("local:budget=30", Protocol::prefill));
  feed(evicts, s, 0, 200, 50, 100);
  EXPECT_EQ(evicts.entries(), 30u);
}

TEST(Cache, StreamNeverAllocatesAgainOnceItSlides) {
  Stream s = make_stream(400, 3);
  Cache cache(s.shape, options_of("streaming-llm:budget=64", Protocol::stream));
  feed(cache, s, 0, 100, 10);
  const std::size_t bytes = cache.bytes().total();
  feed(cache, s, 100, 400, 10);
  EXPECT_EQ(cache.bytes().total(), bytes);
  EXPECT_EQ(cache.tokens(), 400u);
}

TEST(Cache, ImpossibleOptionsAreNamedAtOnce) {
  Stream s = make_stream(1, 3);
  auto make = [&](const char* method, Protocol protocol, std::size_t expected = 0) {
    return error_of([&] { Cache(s.shape, options_of(method, protocol, expected)); });
  };
  EXPECT_THAT(make("streaming-llm:budget=3", Protocol::stream),
              AllOf(HasSubstr("budget=3"), HasSubstr("sink=4"), HasSubstr("at least 5")));
  EXPECT_THAT(make("local", Protocol::prefill), HasSubstr("local:rate=0.25"));
  EXPECT_THAT(make("local:rate=0.5", Protocol::stream), HasSubstr("budget="));
  EXPECT_NO_THROW(Cache(s.shape, options_of("local:rate=0.5", Protocol::stream, 100)));
  CacheShape shape = s.shape;
  shape.key_dim = 257;
  EXPECT_THAT(error_of([&] { Cache(shape, options_of("exact", Protocol::stream)); }),
              AllOf(HasSubstr("257"), HasSubstr("256")));
  shape.key_dim = 0;
  EXPECT_THROW(Cache(shape, options_of("exact", Protocol::stream)), Error);
}

TEST(Cache, OnlyAnExactPromptThatNotedEnoughCanBeForked) {
  const Stream stream = make_stream(40, 3);
  Cache plain(stream.shape, options_of("exact", Protocol::prefill));
  feed(plain, stream, 0, 40, 16);
  EXPECT_NO_THROW(fork_of(plain, Policy::parse("uniform:budget=80"), 0));
  EXPECT_THAT(error_of([&] { fork_of(plain, Policy::parse("h2o:budget=80"), 0); }),
              HasSubstr("has not noted"));
  EXPECT_THAT(error_of([&] { fork_of(plain, Policy::parse("snapkv:budget=80"), 0); }),
              HasSubstr("has not noted"));
  plain.finish_prompt();
  EXPECT_THAT(error_of([&] { fork_of(plain, Policy::parse("uniform:budget=80"), 0); }),
              HasSubstr("finished"));
  const Cache uniform(stream.shape, options_of("uniform:budget=80", Protocol::prefill));
  EXPECT_THAT(error_of([&] { fork_of(uniform, Policy(), 0); }), HasSubstr("only an exact cache"));
  CacheOptions noting = options_of("uniform:budget=80", Protocol::prefill);
  noting.recording.attention_sum = true;
  EXPECT_THAT(error_of([&] { Cache(stream.shape, noting); }), HasSubstr("only an exact cache"));
}

TEST(Cache, ACloneOfARecordingCacheCanBeForked) {
  const Stream stream = make_stream(90, 3);
  CacheOptions recording = options_of("exact", Protocol::prefill);
  recording.recording.include(Policy::parse("h2o:budget=40"));
  recording.recording.include(Policy::parse("snapkv:budget=40"));
  Cache exact(stream.shape, recording);
  feed(exact, stream, 0, 90, 30);
  Cache clone = exact.clone();
  for (const char* method : {"h2o:budget=40", "snapkv:budget=40"}) {
    Cache a = fork_of(exact, Policy::parse(method), 5),
          b = fork_of(clone, Policy::parse(method), 5);
    a.finish_prompt();
    b.finish_prompt();
    EXPECT_EQ(a.to_bytes(), b.to_bytes()) << method;
  }
}

TEST(Cache, ARecordingCacheIsSavedWithoutItsRecording) {
  const Stream stream = make_stream(90, 3);
  CacheOptions options = options_of("exact", Protocol::prefill);
  Cache plain(stream.shape, options);
  options.recording.include(Policy::parse("h2o:budget=40"));
  options.recording.include(Policy::parse("snapkv:budget=40"));
  Cache recording(stream.shape, options);
  feed(plain, stream, 0, 90, 90);
  feed(recording, stream, 0, 90, 90);
  Cache loaded = Cache::parse(recording.to_bytes(), "a recording cache");
  EXPECT_EQ(loaded.to_bytes(), plain.clone().to_bytes());
}

TEST(Cache, AScaleThatIsNotSetIsAnError) {
  Stream s = make_stream(1, 3);
  s.shape.logits = {};
  EXPECT_THAT(error_of([&] { Cache(s.shape, options_of("exact", Protocol::prefill)); }),
              AllOf(HasSubstr("logits.scale"), HasSubstr("not set"), HasSubstr("0.25")));
  const Matrix keys = random_matrix(3, 16, 1);
  Matrix out(3, 16);
  Segment segment;
  segment.keys = segment.values = view_f32(keys.view());
  EXPECT_THAT(error_of([&] {
                attend({keys.view(), {}, {}}, {&segment, 1}, {}, out.view());
              }),
              AllOf(HasSubstr("Logits::scale"), HasSubstr("not set")));
}

TEST(Cache, AnswersTheLatestQueriesAgain) {
  const Stream stream = make_stream(90, 3);
  CacheOptions noting = options_of("exact", Protocol::prefill);
  noting.recording.queries = 7;
  Cache exact(stream.shape, noting);
  const Matrix out = feed(exact, stream, 0, 90, 90);
  // The last token sees everything now as then.
  for (std::size_t h = 0; h < 2; ++h) {
    const Matrix again = answer_latest(exact, exact, 1, h);
    ASSERT_EQ(again.rows(), 7u * 2);
    const std::size_t slot = 89 % 7;
    for (std::size_t g = 0; g < 2; ++g) {
      EXPECT_LT(relative_error(again[slot * 2 + g],
                               std::vector<double>(out[89].begin() + (h * 2 + g) * 24,
                                                   out[89].begin() + (h * 2 + g + 1) * 24)),
                1e-6);
    }
  }
  Cache fork = fork_of(exact, Policy::parse("streaming-llm:budget=20"), 0);
  fork.finish_prompt();
  EXPECT_EQ(answer_latest(fork, exact, 1, 0).rows(), 7u * 2);
  Cache shorter(stream.shape, noting);
  feed(shorter, stream, 0, 80, 80);
  EXPECT_THAT(error_of([&] { answer_latest(shorter, exact, 0, 0); }), HasSubstr("same text"));
}

TEST(Cache, LatestAttentionIsTheShareOfEachEntry) {
  const Stream s = make_stream(200, 3);
  Cache cache(s.shape, options_of("snapkv:budget=64", Protocol::prefill));
  feed(cache, s, 0, 150, 50, 150);
  for (std::size_t head = 0; head < 2; ++head) {
    const Matrix shares = latest_attention(cache, 1, head);
    const Matrix answers = answer_latest(cache, cache, 1, head);
    ASSERT_EQ(shares.rows(), 32u * 2);
    ASSERT_EQ(shares.cols(), 64u);
    for (std::size_t q = 0; q < shares.rows(); ++q) {
      std::vector<double> z(24, 0.0);
      std::vector<float> value(24);
      std::size_t entry = 0;
      for (const Segment& segment : cache.segments(1, head)) {
        for (std::size_t i = 0; i < segment.keys.rows; ++i, ++entry) {
          segment.values.decode(i, value);
          for (std::size_t c = 0; c < 24; ++c) z[c] += double{shares[q][entry]} * value[c];
        }
      }
      EXPECT_LT(relative_error(answers[q], z), 1e-5);
    }
    const Matrix fewer = latest_attention(cache, 1, head, 3);
    ASSERT_EQ(fewer.rows(), 3u);
    // Of tokens 0, 10 and 21 of 32, and of either query head.
    for (const auto& [r, q] : {std::pair{0, 0}, {1, 10 * 2 + 1}, {2, 21 * 2}})
      EXPECT_TRUE(std::ranges::equal(fewer[std::size_t(r)], shares[std::size_t(q)])) << r;
  }
  Cache other(s.shape, options_of("balancekv:budget=100", Protocol::prefill));
  feed(other, s, 0, 150, 50, 150);
  EXPECT_EQ(latest_attention(other, 1, 0).rows(), 0u) << "its method notes no queries";
}

TEST(Cache, MismatchedRowsAreNamed) {
  Stream s = make_stream(4, 3);
  Cache cache(s.shape, options_of("exact", Protocol::prefill));
  Matrix narrow(4, 31), out(4, 96);
  EXPECT_THAT(error_of([&] {
                cache.forward(0, narrow.view(), s.values[0].view(), s.queries[0].view(),
                              out.view());
              }),
              AllOf(HasSubstr("keys are 4 × 31"), HasSubstr("4 × 32")));
  EXPECT_THROW(
      cache.forward(2, s.keys[0].view(), s.values[0].view(), s.queries[0].view(), out.view()),
      Error);
  EXPECT_EQ(cache.tokens(), 0u);
  cache.finish_prompt(0);
  EXPECT_THAT(error_of([&] { cache.finish_prompt(0); }), HasSubstr("already"));
}

TEST(CacheFile, DamagedForeignAndUnwritableFilesAreNamed) {
  TempDir dir;
  Stream s = make_stream(100, 3);
  Cache cache(s.shape, options_of("streaming-llm:budget=20", Protocol::stream));
  feed(cache, s, 0, 100, 10);
  const auto path = dir / "saved.cache";
  cache.save(path);
  std::string good = read_text(path);
  auto load_error = [&](const std::string& content) {
    write_text(path, content);
    return error_of([&] { Cache::load(path); });
  };
  for (std::size_t at : {12ul, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_THAT(load_error(bad), AllOf(HasSubstr("saved.cache"), HasSubstr("damaged")));
  }
  EXPECT_THAT(load_error(good.substr(0, good.size() / 3)), HasSubstr("damaged"));
  EXPECT_THAT(load_error("GGUF and more text"), HasSubstr("not a saved Ballast cache"));
  EXPECT_THAT(load_error(""), HasSubstr("saved.cache"));
  for (char version : {'\3', '\11'}) {
    std::string other = good;
    other[8] = version;
    EXPECT_THAT(load_error(other), AllOf(HasSubstr("of version " + std::to_string(int(version))),
                                         HasSubstr("reads version 4: read the text again")));
  }
  EXPECT_THAT(error_of([&] { Cache::load(dir / "absent"); }), HasSubstr("absent"));
  EXPECT_THAT(error_of([&] { cache.save("/nowhere/at/all.cache"); }), HasSubstr("/nowhere/at/all"));
  EXPECT_THAT(error_of([&] { cache.save("/dev/full"); }), HasSubstr("/dev/full"));
}

// Whatever a file says, loading gives a cache or an Error. The checksum is made right again, so
// that the checks behind it are reached.
TEST(CacheFile, HostileContentIsRefusedOrHarmless) {
  Stream s = make_stream(160, 3);
  s.shape.rotary.frequencies = {1.0f, 0.1f, 0.01f};
  std::mt19937_64 random(1);
  for (const MethodInfo* info : methods()) {
    if (info->global_budget) continue;  // tests/cache/replay_test.cc
    for (StorageType type : {StorageType::f32, StorageType::q4}) {
      const std::string budget = info->name == "exact" ? "" : ":budget=96";
      CacheOptions options = options_of(std::string(info->name) + budget, Protocol::stream);
      options.key_type = options.value_type = type;
      Cache cache(s.shape, options);
      feed(cache, s, 0, 30, 10);
      cache.finish_prompt();  // rows of few bits are rounded
      feed(cache, s, 30, 150, 10);
      const std::vector<std::byte> bytes = cache.to_bytes();
      const std::string good(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      for (int round = 0; round < 150; ++round) {
        std::string bad = good;
        for (int flips = 0; flips < 3; ++flips) {
          // Mostly in the settings and counts, which lie in front.
          std::size_t at = 12 + random() % (round % 2 == 0 ? 400 : bad.size() - 16);
          bad[at] = static_cast<char>(random());
        }
        if (round % 5 == 4) bad.resize(16 + random() % (bad.size() - 16));
        seal_saved_cache(bad);
        try {
          Cache loaded = Cache::parse(std::as_bytes(std::span(bad)), "hostile");
          loaded.bytes();
          loaded.kept(0, 0);
          feed(loaded, s, 150, 160, 5);
        } catch (const Error&) {
        } catch (const std::bad_alloc&) {
        }
      }
    }
  }
}

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
