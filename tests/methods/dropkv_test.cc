#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

// The scores themselves: tests/cache/observed_test.cc.
TEST(DropKv, Contract) { check_contract({.method = "dropkv:budget=64", .any_chunking = false}); }

TEST(DropKv, AsksForTheChangeOfTheAnswers) {
  const AttentionStats stats = Policy::parse("dropkv").attention_stats();
  EXPECT_EQ(stats.kind, AttentionStats::Kind::recent);
  EXPECT_NE(stats.recent_score, nullptr);
  EXPECT_EQ(Policy::parse("dropkv:observe=7").observed(), 7u);
}

}  // namespace
}  // namespace ballast::test
