// States of recurrent layers, which a cache keeps beside its entries.
#include "cache/saved_fields.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

class Recurrent : public testing::Test {
 protected:
  Recurrent() { s_.shape.recurrent = {3, 5}; }

  /// Tokens [begin, end): each adds its number to every element of the states.
  void read(Cache& cache, std::size_t begin, std::size_t end) const {
    for (std::size_t i = 0; i < 2; ++i) {
      for (float& x : cache.recurrent()->state(i)) {
        for (std::size_t t = begin; t < end; ++t) x += static_cast<float>(t);
      }
      cache.recurrent()->advance(i, end - begin);
    }
    feed(cache, s_, begin, end, 16);
  }
  static std::vector<float> state(Cache& cache, std::size_t i) {
    return {cache.recurrent()->state(i).begin(), cache.recurrent()->state(i).end()};
  }
  Cache fresh(const char* method = "exact") const {
    return {s_.shape, options_of(method, Protocol::prefill)};
  }

  Stream s_ = make_stream(80, 1);
};

TEST_F(Recurrent, StatesAreClonedForkedAndSaved) {
  Cache cache = fresh();
  read(cache, 0, 4);
  EXPECT_EQ(state(cache, 0), std::vector<float>(3, 6));
  cache.recurrent()->keep();
  read(cache, 4, 6);
  Cache clone = cache.clone(), loaded = Cache::parse(cache.to_bytes(), "saved");
  Cache fork = fork_of(cache, Policy::parse("uniform:budget=64"), 1);
  for (Cache* other : {&clone, &loaded, &fork}) {
    EXPECT_EQ(state(*other, 1), std::vector<float>(5, 15));
    EXPECT_EQ(other->bytes().recurrent, cache.bytes().recurrent);
    read(*other, 6, 7);
    EXPECT_EQ(state(*other, 1), std::vector<float>(5, 21));
    other->truncate(4);
    EXPECT_EQ(state(*other, 1), std::vector<float>(5, 6));
  }
  EXPECT_EQ(state(cache, 1), std::vector<float>(5, 15));
}

TEST_F(Recurrent, TokensGoBackToWhereStatesWereKept) {
  Cache cache = fresh();
  read(cache, 0, 10);
  cache.recurrent()->keep();
  read(cache, 10, 20);
  EXPECT_EQ(cache.recurrent()->reachable(25), 20u);
  EXPECT_EQ(cache.recurrent()->reachable(19), 10u);
  EXPECT_EQ(cache.recurrent()->reachable(9), 0u);
  EXPECT_THAT(error_of([&] { cache.truncate(12); }), HasSubstr("go back to 12, but to 10"));
  EXPECT_EQ(cache.tokens(), 20u);
  cache.truncate(20);
  cache.truncate(10);
  EXPECT_EQ(state(cache, 0), std::vector<float>(3, 45));
  cache.truncate(0);
  EXPECT_EQ(state(cache, 0), std::vector<float>(3, 0));
  EXPECT_EQ(Cache(make_stream(1, 1).shape, options_of("exact", Protocol::stream)).recurrent(),
            nullptr);
}

TEST_F(Recurrent, BytesCountButBelongToNoBudget) {
  Cache cache = fresh();
  read(cache, 0, 10);
  EXPECT_EQ(cache.bytes().recurrent, 8 * sizeof(float));
  cache.recurrent()->keep();
  EXPECT_EQ(cache.bytes().recurrent, 16 * sizeof(float));
  Cache plain(make_stream(1, 1).shape, options_of("exact", Protocol::prefill));
  feed(plain, s_, 0, 10, 16);
  EXPECT_EQ(cache.bytes().total(), plain.bytes().total() + 16 * sizeof(float));
  EXPECT_EQ(cache.bytes().used(), plain.bytes().used());
}

TEST_F(Recurrent, ACacheIsSavedOnceEveryStateHasReadItsTokens) {
  Cache cache = fresh();
  read(cache, 0, 10);
  cache.recurrent()->advance(1, 1);
  EXPECT_THAT(error_of([&] { cache.to_bytes(); }), HasSubstr("recurrent layer"));
  cache.truncate(0);
  EXPECT_NO_THROW(cache.to_bytes());
}

}  // namespace
}  // namespace ballast::test
