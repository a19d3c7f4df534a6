#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

// The scores themselves: tests/cache/observed_test.cc.
TEST(DropKv, Contract) { check_contract({.method = "dropkv:budget=64", .any_chunking = false}); }

TEST(DropKv, AsksForTheChangeOfTheAnswers) {
  const Needs needs = Policy::parse("dropkv").needs();
  EXPECT_TRUE(needs.recent_queries);
  EXPECT_NE(needs.recent_score, nullptr);
  EXPECT_EQ(Policy::parse("dropkv:observe=7").observed(), 7u);
}

}  // namespace
}  // namespace ballast::test
