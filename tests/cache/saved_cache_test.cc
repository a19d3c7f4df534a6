// Saved caches with a right checksum and one field that cannot be.
#include "ballast/recording.h"
#include "ballast/scoring.h"
#include "cache/streams.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string saved(const Cache& cache) {
  const std::vector<std::byte> bytes = cache.to_bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string parse_error(std::string bytes) {
  seal_saved_cache(bytes);
  try {
    Cache::parse(std::as_bytes(std::span(bytes)), "a file");
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string u64(std::uint64_t x) { return {reinterpret_cast<const char*>(&x), sizeof(x)}; }

/// What a layer begins with.
struct LayerHead {
  int state = 0;  ///< whole, growing, sliding
  bool prompt_finished = false;
  std::size_t tokens = 0;
  Budget budget;
  std::string bytes() const {
    return std::string{static_cast<char>(state), static_cast<char>(prompt_finished)} + u64(tokens) +
           u64(budget.sink) + u64(budget.summary) + u64(budget.window) + u64(budget.step);
  }
};

/// The error that a file gives when both layers begin with `bad` in place of `good`.
std::string error_with(const std::string& file, const LayerHead& good, const LayerHead& bad) {
  std::string out = file;
  std::size_t found = 0;
  for (std::size_t at = 0; (at = out.find(good.bytes(), at)) != std::string::npos; ++found, ++at)
    out.replace(at, good.bytes().size(), bad.bytes());
  EXPECT_EQ(found, 2u);
  return parse_error(out);
}

TEST(SavedCache, AWindowHoldsNoMoreThanTheTextNorLessThanItMust) {
  const Stream s = make_stream(200, 3);
  {
    Cache whole(s.shape, options_of("exact", Protocol::stream));
    feed(whole, s, 0, 20, 5);
    const Budget budget = whole.options().policy.budget(0, Protocol::stream, 0, 2);
    const LayerHead head{0, false, 20, budget};
    LayerHead bad = head;
    for (std::size_t tokens : {19, 21}) {
      bad.tokens = tokens;
      EXPECT_NE(error_with(saved(whole), head, bad), "no error");
    }
  }
  {
    const auto options = options_of("local:budget=30,generated=keep", Protocol::prefill);
    Cache growing(s.shape, options);
    feed(growing, s, 0, 200, 50, 100);
    const LayerHead head{1, true, 200, options.policy.budget(100, Protocol::prefill, 0, 2)};
    LayerHead bad = head;
    bad.tokens = 129;
    EXPECT_NE(error_with(saved(growing), head, bad), "no error");
  }
  const auto options = options_of("streaming-llm:budget=20,sink=4", Protocol::stream);
  Cache sliding(s.shape, options);
  feed(sliding, s, 0, 100, 10);
  const LayerHead head{2, false, 100, options.policy.budget(0, Protocol::stream, 0, 2)};
  EXPECT_EQ(error_with(saved(sliding), head, head), "no error");
  LayerHead bad = head;
  bad.tokens = 15;
  EXPECT_NE(error_with(saved(sliding), head, bad), "no error");
  bad = head;
  --bad.budget.window;
  EXPECT_NE(error_with(saved(sliding), head, bad), "no error") << "the ring is larger";
  bad = head;
  bad.budget.window += bad.budget.step;
  bad.budget.step = 0;
  EXPECT_NE(error_with(saved(sliding), head, bad), "no error") << "nothing ever leaves";
}

// Queries are remembered in arrays that the file must hold: more are refused before they are made.
TEST(SavedCache, RemembersNoMoreQueriesThanTheFileHolds) {
  const Stream s = make_stream(40, 3);
  const std::string method = "snapkv:budget=96,observe=8";
  Cache cache(s.shape, options_of(method, Protocol::prefill));
  feed(cache, s, 0, 3, 3);
  const std::string file = saved(cache);
  EXPECT_EQ(parse_error(file), "no error");
  const std::size_t at = file.find(method);
  ASSERT_NE(at, std::string::npos);
  // Behind the method: four enumerators, the seed, the length, an empty note; a checksum ends it.
  const std::size_t left = file.size() - (at + method.size() + 4 + 8 + 8 + 8) - 4;
  const std::size_t most = left / sizeof(float) / (2 * 2) / (2 * 16);
  const auto error_of_observing = [&](std::size_t tokens) {
    const std::string other = "snapkv:budget=96,observe=" + std::to_string(tokens);
    std::string bad = file;
    bad.replace(at - 8, 8 + method.size(), u64(other.size()) + other);
    return parse_error(bad);
  };
  EXPECT_THAT(error_of_observing(most + 1), HasSubstr("remembered queries"));
  EXPECT_THAT(error_of_observing(65'536), HasSubstr("remembered queries"));
  EXPECT_THAT(error_of_observing(most), Not(HasSubstr("remembered queries")));
}

// Slopes are made room for once it is sure that the file can hold them.
TEST(SavedCache, HasNoMoreSlopesThanTheFileHolds) {
  const Stream s = make_stream(40, 3);
  const std::string method = "snapkv:budget=96,observe=8";
  Cache cache(s.shape, options_of(method, Protocol::prefill));
  feed(cache, s, 0, 3, 3);
  const std::string file = saved(cache);
  // In front of the method: its length, which pairs, a magnitude, no frequencies, of one rotation,
  // no recurrent layers, no sinks, no slopes; before these no windows, one window, two floats, two
  // dimensions and the query heads of a KV head.
  const std::size_t slopes = file.find(method) - 8 - 1 - 4 - 8 - 8 - 3 * 8;
  const std::size_t query_heads = slopes - 8 - sizeof(Position) - 8 - 3 * 8;
  ASSERT_EQ(file.substr(query_heads, 8), u64(2));
  ASSERT_EQ(file.substr(slopes, 8), u64(0));
  std::string bad = file;
  bad.replace(query_heads, 8, u64(65'536)).replace(slopes, 8, u64(100'000));
  EXPECT_THAT(parse_error(bad), HasSubstr("the number of slopes"));
}

// Spare room is no part of what a cache holds.
TEST(SavedCache, TheFileOfACacheDoesNotDependOnHowTheTextCame) {
  const Stream text = make_stream(90, 3);
  for (const char* method : {"exact", "h2o:budget=200"}) {
    for (const Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      std::vector<std::byte> first;
      for (const std::size_t expected : {std::size_t{0}, std::size_t{90}, std::size_t{500}}) {
        for (const std::size_t call : {std::size_t{1}, std::size_t{7}, std::size_t{90}}) {
          CacheOptions options = options_of(method, protocol);
          Cache cache(text.shape, options);
          if (expected > 0) cache.reserve(expected);
          feed(cache, text, 0, 90, call);
          EXPECT_EQ(cache.bytes().used(), cache.clone().bytes().used()) << method;
          const std::vector<std::byte> bytes = cache.to_bytes();
          if (first.empty()) first = bytes;
          EXPECT_EQ(bytes, first) << method << ", calls of " << call;
          EXPECT_EQ(Cache::parse(bytes, "read").to_bytes(), first) << method;
        }
      }
    }
  }
}

// A length of 2^31 in a file is no reason to take memory for it, in a copy neither.
TEST(SavedCache, TokensThatAFileExpectsAreWorthNoMemory) {
  const Stream text = make_stream(40, 3);
  for (const char* method :
       {"replay:bytes=1/2", "kvzip:bytes=1/2", "uniform:budget=16,sink=2,window=4"}) {
    CacheOptions options = options_of(method, Protocol::prefill);
    Cache cache(text.shape, options);
    feed(cache, text, 0, 40, 40);
    std::string bytes = saved(cache);
    // Behind the seed, 7.
    const std::size_t at = bytes.find(std::string("\7\0\0\0\0\0\0\0", 8)) + 8;
    const std::uint64_t expected = 0x7fffffff;
    std::memcpy(bytes.data() + at, &expected, sizeof(expected));
    seal_saved_cache(bytes);
    const Cache loaded = Cache::parse(std::as_bytes(std::span(bytes)), "a file");
    ASSERT_EQ(loaded.options().expected_tokens, expected);
    Cache copy = loaded.clone();
    if (scoring_of(copy).needs_replay()) {
      const std::vector<float> scores(40, 0.5f);
      for (std::size_t l = 0; l < 2; ++l) {
        for (std::size_t h = 0; h < 2; ++h) scoring_of(copy).set_scores(l, h, scores);
      }
    }
    copy.finish_prompt();
    EXPECT_LE(copy.bytes().room, 2 * 2 * 40 * (16 + 24 + 1) * sizeof(float)) << method;
  }
}

}  // namespace
}  // namespace ballast::test
