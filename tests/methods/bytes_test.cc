// The bytes that a summary reports are those that it holds: compared with what the heap grows by.
#include "ballast/method.h"
#include "ballast/testing/summary_contract.h"
#include "heap_bytes.h"

namespace ballast::test {
namespace {

// One summary with so much room that every number it keeps for an entry shows.
TEST(SummaryBytes, AreWhatTheHeapHasGrownBy) {
  if (!kHeapCanBeAsked) GTEST_SKIP() << "a sanitizer keeps the heap";
  constexpr std::size_t kCapacity = 20'000, kDim = 8;
  for (const char* method : {"h2o:budget=64", "spatten:budget=64", "uniform:budget=64",
                             "balancekv:budget=64", "keydiff:budget=64", "criticalkv:budget=64"}) {
    const auto setup = setup_of(method, kCapacity, kDim);
    const std::size_t before = heap_bytes();
    const auto summary = make_summary(setup);
    const std::size_t grown = heap_bytes() - before;
    EXPECT_LE(summary->bytes(), grown) << method;
    EXPECT_GE(summary->bytes() + 32768, grown) << method;
  }
}

}  // namespace
}  // namespace ballast::test
