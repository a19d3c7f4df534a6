// A model's attention sinks: logits that enter the normaliser alone.
#include "cache/saved_fields.h"

namespace ballast::test {
namespace {

Stream stream_with_sinks() {
  Stream s = make_stream(160, 3);
  s.shape.sink_logits = {1.5f, -2.0f, 0.0f, 4.0f, 3.0f, 2.5f, -1.0f, 0.5f};
  return s;
}

/// Of layer 1, from what the cache shows of it: x·Z / (Z + e^sink). Where the two sums have entries
/// of their own, PartialAttention::divisor() counts, and attend() is asked.
Matrix expected(const Cache& cache, const Stream& s, std::size_t t) {
  Matrix out(1, 4 * 24);
  for (std::size_t q = 0; q < 4; ++q) {
    const auto position = static_cast<Position>(t);
    const Queries asked{{s.queries[1].data() + t * 64 + q * 16, 1, 16}, {&position, 1}, {}};
    const std::vector<Segment> segments = cache.segments(1, q / 2);
    if (std::ranges::any_of(segments, [](const Segment& x) { return x.role != Role::both; })) {
      Queries with = asked;
      with.sink_logits = std::span(s.shape.sink_logits).subspan(4 + q, 1);
      attend(with, segments, s.shape.logits, {out.data() + q * 24, 1, 24});
      continue;
    }
    PartialAttention seen(1, 24);
    attend_partial(asked, segments, s.shape.logits, seen);
    const double share = double{seen.normaliser[0]} /
                         (double{seen.normaliser[0]} +
                          std::exp(double{s.shape.sink_logits[4 + q]} - double{seen.max_logit[0]}));
    seen.finish(MutableMatrix(out.data() + q * 24, 1, 24));
    for (std::size_t i = 0; i < 24; ++i) out[0][q * 24 + i] *= static_cast<float>(share);
  }
  return out;
}

class Sinks : public testing::TestWithParam<std::string> {};

TEST_P(Sinks, EnterTheNormaliserOnceWithWhatIsKept) {
  const Stream s = stream_with_sinks();
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    const bool exact = GetParam() == "exact";
    CacheOptions options =
        options_of(GetParam() + (exact ? "" : ":budget=80"), protocol, s.tokens());
    Cache cache(s.shape, options);
    feed(cache, s, 0, 150, 33, protocol == Protocol::prefill ? 150 : 0);
    if (!exact) {
      EXPECT_LT(cache.entries(1), 90u);
    }
    for (std::size_t t = 150; t < 154; ++t) {
      const Matrix got = feed(cache, s, t, t + 1, 1);
      const Matrix want = expected(cache, s, t);
      for (std::size_t i = 0; i < 96; ++i) {
        EXPECT_NEAR(got[0][i], want[0][i], 2e-4) << to_string(protocol) << " " << t << " " << i;
      }
    }
  }
}

std::vector<std::string> methods_of_entries() {
  std::vector<std::string> names;
  for (const MethodInfo* info : methods()) {
    if (!info->global_budget) names.emplace_back(info->name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(, Sinks, testing::ValuesIn(methods_of_entries()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(SinkLogits, GoOnInClonesAndSavedCaches) {
  const Stream s = stream_with_sinks();
  Cache cache(s.shape, options_of("snapkv:budget=40", Protocol::stream, s.tokens()));
  feed(cache, s, 0, 100, 10);
  Cache clone = cache.clone(), loaded = Cache::parse(cache.to_bytes(), "saved");
  EXPECT_EQ(loaded.shape().sink_logits, s.shape.sink_logits);
  const Matrix out = feed(cache, s, 100, 120, 7);
  EXPECT_TRUE(same_bits(feed(clone, s, 100, 120, 7), out));
  EXPECT_TRUE(same_bits(feed(loaded, s, 100, 120, 7), out));
}

TEST(SinkLogits, TakeTheirPartOfWhatEntriesAreScoredWith) {
  const std::vector<std::vector<float>> keys = {{1, 0}, {0, 1}};
  Rows rows(StorageType::f32, 2, 2);
  for (std::size_t i = 0; i < 2; ++i) rows.set(i, keys[i]);
  Segment segment;
  segment.keys = segment.values = rows.view(0, 2);
  const float query[2] = {1, 1}, sink = 2;
  Matrix out(1, 2);
  std::vector<float> sums(2);
  attend_with_attention_sum({{query, 1, 2}, {}, {}, {&sink, 1}}, {&segment, 1}, {.scale = 1.0f},
                            out.view(), sums);
  const double one = std::exp(1.0), all = 2 * one + std::exp(2.0);
  EXPECT_NEAR(sums[0], one / all, 1e-6);
  EXPECT_NEAR(out[0][1], one / all, 1e-6);
}

TEST(SinkLogits, OfAnotherNumberAreRefused) {
  Stream s = stream_with_sinks();
  s.shape.sink_logits.pop_back();
  EXPECT_THAT(error_of([&] { Cache(s.shape, options_of("exact", Protocol::stream)); }),
              testing::HasSubstr("7 sink logits"));
}

}  // namespace
}  // namespace ballast::test
