#include "ballast/engine/gauge.h"

#include <gmock/gmock.h>

#include "ballast/engine/guard.h"
#include "ballast/engine/session.h"
#include "ballast/error.h"
#include "base/read_file.h"
#include "paths.h"
#include "support.h"

namespace ballast {
namespace {

using testing::HasSubstr;

class GaugeTest : public testing::Test {
 protected:
  static std::shared_ptr<const TextModel> model() {
    static const auto loaded =
        std::make_shared<const TextModel>(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf");
    return loaded;
  }
  static std::vector<Token> text() {
    return model()->tokenizer.encode(read_file(BALLAST_SOURCE_DIR "/examples/record.txt"));
  }
  static std::optional<GaugeReading> measured(const Policy& policy, std::span<const Token> tokens) {
    CacheOptions options;
    options.policy = policy;
    Session session(model(), options);
    session.read(tokens);
    std::optional<GaugeReading> out;
    EXPECT_TRUE(session.finish_prompt({}, out));
    return out;
  }
  static std::optional<GaugeReading> measured(const char* bytes) {
    return measured(model()->model.policy_for(bytes), text());
  }
};

TEST_F(GaugeTest, SmallerCachesLoseMore) {
  const auto most = measured("1/2"), small = measured("1/8"), tiny = measured("1/64");
  ASSERT_TRUE(most && small && tiny);
  EXPECT_LT(most->kl, 0.02);
  EXPECT_LT(most->kl, small->kl);
  EXPECT_LT(small->kl, tiny->kl);
  EXPECT_GT(tiny->kl, 0.1);
  EXPECT_GT(small->tokens, 20u);
  EXPECT_GT(small->seconds, 0);
}

// What a method drops from the middle is missed, though the last tokens are all there.
TEST_F(GaugeTest, TheMiddleCounts) {
  const auto windowed = measured(Policy::parse("streaming-llm:rate=0.125"), text());
  ASSERT_TRUE(windowed);
  EXPECT_GT(windowed->kl, measured("1/8")->kl);
}

TEST_F(GaugeTest, NothingChangesInTheCache) {
  CacheOptions options;
  options.policy = model()->model.policy_for("1/8");
  Session plain(model(), options), gauged(model(), options);
  for (Session* one : {&plain, &gauged}) one->read(text());
  plain.finish_prompt();
  std::optional<GaugeReading> reading;
  gauged.finish_prompt({}, reading);
  EXPECT_EQ(gauged.tokens(), plain.tokens());
  EXPECT_EQ(gauged.cache().bytes().used(), plain.cache().bytes().used());
  const std::vector<Token> more = model()->tokenizer.encode(" line one");
  for (Session* one : {&plain, &gauged}) one->read(more);
  EXPECT_TRUE(std::ranges::equal(gauged.logits(), plain.logits()));
}

TEST_F(GaugeTest, WhatCannotBeMeasuredHasNoFigure) {
  EXPECT_FALSE(measured(Policy(), text()).has_value());
  std::vector<Token> few = text();
  few.resize(40);
  EXPECT_FALSE(measured(model()->model.policy_for("1/2"), few).has_value());
  CacheOptions options;
  options.policy = Policy::parse("streaming-llm:budget=64");
  options.protocol = Protocol::stream;
  EXPECT_THAT(Gauge::why_not(model()->model, options), HasSubstr("stream"));
}

TEST_F(GaugeTest, SaysInWordsWhatToTry) {
  const Policy eighth = Policy::parse("replay:bytes=1/8");
  EXPECT_EQ(to_text({.kl = 0.0041}, eighth), "answers as from the whole cache: KL 0.0041");
  EXPECT_EQ(to_text({.kl = 0.03}, eighth), "a little is lost: KL 0.03");
  EXPECT_EQ(to_text({.kl = 0.4}, eighth), "much is lost: KL 0.4; try 1/4");
  EXPECT_EQ(to_text({.kl = 0.4}, Policy::parse("replay:bytes=1M")), "much is lost: KL 0.4");
  EXPECT_EQ(to_text({.kl = 0.4}, Policy::parse("replay:bytes=1/2")), "much is lost: KL 0.4");
}

// The guard takes the first size within its bound, and that cache is the one of this size.
TEST_F(GaugeTest, TheGuardTakesTheSmallestWithinItsBound) {
  const std::vector<Token> all = text(), more = model()->tokenizer.encode(" line one");
  for (const double bound : {1e9, 0.05, -1.0}) {
    const Guard guard(model()->model, bound);
    Session session(model(), guard.reading({}));
    session.read(all);
    Guarded guarded;
    ASSERT_TRUE(session.finish_prompt({}, guard, guarded));
    ASSERT_FALSE(guarded.tried.empty());
    for (std::size_t i = 0; i + 1 < guarded.tried.size(); ++i) {
      EXPECT_GT(guarded.tried[i].gauge.kl, bound);
    }
    EXPECT_EQ(guarded.exact, guarded.tried.back().gauge.kl > bound);
    CacheOptions options;
    if (!guarded.exact) options.policy = model()->model.policy_for(guarded.bytes());
    Session fixed(model(), options);
    fixed.read(all);
    fixed.finish_prompt();
    EXPECT_EQ(session.cache().options().policy.to_string(), options.policy.to_string());
    for (Session* one : {&session, &fixed}) one->read(more);
    EXPECT_TRUE(std::ranges::equal(session.logits(), fixed.logits())) << bound;
  }
}

TEST_F(GaugeTest, TheGuardRefusesWhatItCannotCompare) {
  CacheOptions options;
  options.protocol = Protocol::stream;
  EXPECT_THROW(Guard(model()->model).reading(options), Error);
}

}  // namespace
}  // namespace ballast
