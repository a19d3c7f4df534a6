// The fewest entries that a method can do with.
#include "methods/entry_budget.h"

#include <gtest/gtest.h>

namespace ballast::test {
namespace {

TEST(LeastEntries, AreSinkWindowAndWhereTheWindowSlidesAStep) {
  const auto least = [](const char* method, Protocol protocol) {
    return least_entries(Policy::parse(method), protocol);
  };
  EXPECT_EQ(least("streaming-llm:sink=3", Protocol::prefill), 4u);  // it evicts what it generates
  EXPECT_EQ(least("balancekv:sink=3,window=5", Protocol::prefill), 8u);
  EXPECT_EQ(least("balancekv:sink=3,window=5", Protocol::stream), 9u);
  EXPECT_EQ(least("balancekv:sink=3,window=5,step=4", Protocol::stream), 12u);
  EXPECT_EQ(least("balancekv:sink=0,window=0", Protocol::prefill), 1u);
}

}  // namespace
}  // namespace ballast::test
