// Saved caches whose parts are each well formed and do not fit together.
#include <functional>
#include <limits>
#include <optional>

#include "base/os/memory.h"
#include "cache/saved_fields.h"
#include "cache/streams.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

Cache parse(std::string bytes) {
  seal_saved_cache(bytes);
  return Cache::parse(std::as_bytes(std::span(bytes)), "hostile.cache");
}

struct Saved {
  explicit Saved(const char* method, std::size_t tokens = 150, Protocol protocol = Protocol::stream)
      : stream(make_stream(tokens, 3)), cache(stream.shape, options_of(method, protocol)) {
    feed(cache, stream, 0, tokens, 10, protocol == Protocol::prefill ? tokens : 0);
    bytes = saved(cache);
    fields.emplace(cache, bytes);
  }
  /// What loading says once `change` has been made.
  std::string error(const std::function<void(std::string&, const SavedFields&)>& change) const {
    std::string bad = bytes;
    change(bad, *fields);
    const std::string error = error_of([&] { parse(bad); });
    EXPECT_THAT(error, HasSubstr("hostile.cache"));
    return error;
  }

  Stream stream;
  Cache cache;
  std::string bytes;
  std::optional<SavedFields> fields;
};

/// Head `h` of layer `l` taken from another file.
std::string with_head(const Saved& to, const Saved& from, std::size_t l, std::size_t h) {
  const SavedHead& a = to.fields->layers[l].heads[h];
  const SavedHead& b = from.fields->layers[l].heads[h];
  std::string out = to.bytes;
  out.replace(a.begin, a.end - a.begin, from.bytes, b.begin, b.end - b.begin);
  return out;
}

TEST(SavedCacheInvariants, FieldsAreWhereTheTestsLook) {
  for (const char* method : {"h2o:budget=96,step=4", "streaming-llm:budget=40,step=5", "exact"}) {
    const Saved s(method);
    EXPECT_EQ(s.fields->end + 4, s.bytes.size()) << method;
    EXPECT_NO_THROW(parse(s.bytes)) << method;
  }
}

TEST(SavedCacheInvariants, HeadsOfALayerFitTogether) {
  for (const char* method : {"h2o:budget=96,step=4", "streaming-llm:budget=40,step=5"}) {
    const Saved s(method), fuller(method, 152);
    const std::string bad = with_head(s, fuller, 0, 1);
    ASSERT_NE(bad.size(), s.bytes.size()) << "the windows are equally full";
    EXPECT_THAT(error_of([&] { parse(bad); }), HasSubstr("layer 0, head 1: a sliding cache"));
  }
  const Saved exact("exact", 30), longer("exact", 31);
  EXPECT_THAT(error_of([&] { parse(with_head(exact, longer, 1, 0)); }),
              HasSubstr("layer 1, head 0: a whole cache of 30 tokens"));
}

TEST(SavedCacheInvariants, AnEmptyWindowBesideAFullOneIsRefused) {
  const Saved s("streaming-llm:budget=40,step=5");
  EXPECT_THAT(s.error([](std::string& bytes, const SavedFields& f) {
    const SavedHead& head = f.layers[0].heads[1];
    put<std::uint64_t>(bytes, head.window + 16, 0);
    bytes.erase(head.window + 24, head.end - head.window - 24);
  }),
              HasSubstr("layer 0, head 1"));
}

TEST(SavedCacheInvariants, ASummaryIsThereAndLiesBetweenSinkAndWindow) {
  const Saved s("h2o:budget=96,step=4");
  EXPECT_THAT(s.error([](std::string& bytes, const SavedFields& f) {
    const SavedHead& head = f.layers[1].heads[0];
    bytes.erase(head.summary, head.window - head.summary);
    bytes[head.has_summary] = 0;
  }),
              HasSubstr("layer 1, head 0: the summary is missing"));
  for (Position position : {149, 2147483647}) {
    EXPECT_THAT(s.error([&](std::string& bytes, const SavedFields& f) {
      put(bytes, f.layers[1].heads[1].positions, position);
    }),
                HasSubstr("position " + std::to_string(position)));
  }
}

TEST(SavedCacheInvariants, LayersAgreeOnTokensAndPrompt) {
  const Saved s("streaming-llm:budget=40,step=5");
  EXPECT_THAT(s.error([](std::string& bytes, const SavedFields& f) {
    put<std::uint64_t>(bytes, f.layers[1].begin + 2, 149);
  }),
              HasSubstr("layer 1 has read 149 tokens, layer 0 150"));
  EXPECT_THAT(
      s.error([](std::string& bytes, const SavedFields& f) { bytes[f.layers[1].begin + 1] = 1; }),
      HasSubstr("finished its prompt alone"));
  Cache uneven(s.stream.shape, options_of("exact", Protocol::stream));
  Matrix out(1, 4 * 24);
  uneven.forward(0, s.stream.keys[0].view().slice(0, 1), s.stream.values[0].view().slice(0, 1),
                 s.stream.queries[0].view().slice(0, 1), out.view());
  EXPECT_THAT(error_of([&] { uneven.to_bytes(); }), HasSubstr("the same tokens"));
}

TEST(SavedCacheInvariants, StatesFitMethodProtocolAndBudget) {
  const Saved sliding("streaming-llm:budget=40,step=5"), exact("exact", 30);
  const Saved growing("h2o:budget=96", 150, Protocol::prefill);
  EXPECT_NO_THROW(parse(growing.bytes));
  const auto state = [](char state) {
    return [state](std::string& bytes, const SavedFields& f) { bytes[f.layers[0].begin] = state; };
  };
  EXPECT_THAT(sliding.error(state(1)), HasSubstr("window"));
  EXPECT_THAT(sliding.error(state(0)), HasSubstr("window"));
  EXPECT_THAT(exact.error(state(1)), HasSubstr("layer 0 is growing"));
  EXPECT_THAT(exact.error(state(2)), HasSubstr("layer 0"));
  EXPECT_THAT(growing.error(state(0)), HasSubstr("layer 0"));
  EXPECT_THAT(sliding.error([](std::string& bytes, const SavedFields& f) {
    put<std::uint64_t>(bytes, f.layers[0].budget + 24, 0);  // no step
  }),
              HasSubstr("layer 0"));
}

TEST(SavedCacheInvariants, NumbersOfTheShapeAreFiniteAndNotNegative) {
  const Saved s("exact", 30);
  EXPECT_THAT(s.error([](std::string& bytes, const SavedFields& f) {
    put(bytes, f.scale, std::numeric_limits<float>::infinity());
  }),
              HasSubstr("a scale of inf"));
  EXPECT_THAT(
      s.error([](std::string& bytes, const SavedFields& f) { put(bytes, f.scale + 8, -5); }),
      HasSubstr("a sliding window of -5"));
}

TEST(SavedCacheInvariants, PositionsEnd) {
  // A window that slides holds few tokens, of however long a text.
  const Saved s("streaming-llm:budget=40,step=5");
  std::string last = s.bytes;
  for (const SavedLayer& layer : s.fields->layers) {
    put<std::uint64_t>(last, layer.begin + 2, 2147483647 - 1);
  }
  Cache cache = parse(last);
  feed(cache, s.stream, 0, 1, 1);
  EXPECT_THAT(error_of([&] { feed(cache, s.stream, 0, 1, 1); }), HasSubstr("positions go up to"));
}

TEST(SavedCacheInvariants, MemoryIsInProportionToTheFile) {
  const Saved s("h2o:budget=96,step=4");
  const std::size_t before = peak_memory();
  for (std::uint64_t capacity : {std::uint64_t{2'000'000}, std::uint64_t{2147483647}}) {
    EXPECT_THAT(s.error([&](std::string& bytes, const SavedFields& f) {
      put<std::uint64_t>(bytes, f.layers[0].budget + 8, capacity);
      put<std::uint64_t>(bytes, f.layers[0].heads[0].begin, capacity);
    }),
                HasSubstr("far more than the file holds"));
  }
  EXPECT_THAT(s.error([](std::string& bytes, const SavedFields&) {
    put<std::uint64_t>(bytes, 12, 1'000'000);  // layers
    put<std::uint64_t>(bytes, 20, 1);
    bytes.resize(bytes.size() + 1'100'000);
  }),
              HasSubstr("layers of 1 KV heads cannot be"));
  // What it says of tokens to come is believed once they come.
  Cache open(s.stream.shape, options_of("h2o:budget=64", Protocol::prefill));
  feed(open, s.stream, 0, 15, 15);
  std::string promising = saved(open);
  put<std::uint64_t>(promising, SavedFields(open, promising).seed + 8, 2147483647);
  Cache cache = parse(promising);
  const Stream more = make_stream(120, 5);
  feed(cache, more, 0, 100, 10, 100);
  EXPECT_LT(cache.bytes().total(), std::size_t{1} << 20);
  EXPECT_LT(peak_memory() - before, std::size_t{128} << 20);
}

// Whatever fields say, a cache is refused or goes on.
TEST(SavedCacheInvariants, WhatLoadsGoesOn) {
  const std::uint64_t numbers[] = {0,   1,        2,          3,          15,         16,   127,
                                   128, 1u << 20, 2147483646, 2147483647, 2147483648, ~0ull};
  std::mt19937_64 random(5);
  int loaded = 0;
  for (const char* method : {"h2o:budget=96,step=4", "streaming-llm:budget=40,step=5", "exact"}) {
    for (const Protocol protocol : {Protocol::stream, Protocol::prefill}) {
      const Saved s(method, 150, protocol);
      std::vector<std::size_t> places;
      for (std::size_t at = 12; at + 8 < s.fields->layers[0].begin; at += 4) places.push_back(at);
      for (const SavedLayer& layer : s.fields->layers) {
        for (std::size_t i = 0; i < 5; ++i) places.push_back(layer.begin + 2 + 8 * i);
        for (const SavedHead& head : layer.heads) {
          for (std::size_t i = 0; i < 3; ++i) {
            places.push_back(head.begin + 8 * i);
            places.push_back(head.window + 8 * i);
          }
          if (head.summary != 0) places.push_back(head.positions - 4);
          if (head.summary != 0) places.push_back(head.window - 16);
        }
      }
      for (int round = 0; round < 170; ++round) {
        std::string bad = s.bytes;
        for (int i = 0; i < 1 + round % 3; ++i) {
          const std::size_t at = places[random() % places.size()];
          if (random() % 4 == 0) {
            bad[at] = static_cast<char>(random());
          } else {
            put(bad, at, numbers[random() % std::size(numbers)]);
          }
        }
        try {
          Cache cache = parse(bad);
          const CacheShape& shape = cache.shape();
          if (shape.layers != 2 || shape.kv_heads != 2 || shape.queries_per_kv_head != 2) continue;
          if (shape.key_dim != 16 || shape.value_dim != 24) continue;
          ++loaded;
          for (std::size_t t = 0; t < 60; t += 20) feed(cache, s.stream, t, t + 20, 7);
          cache.kept(1, 1);
          const std::string again = saved(parse(saved(cache)));  // without spare room
          EXPECT_TRUE(saved(parse(again)) == again);
        } catch (const Error&) {
        }
      }
    }
  }
  EXPECT_GT(loaded, 50);  // seeds, expected lengths, positions that can be
}

}  // namespace
}  // namespace ballast::test
