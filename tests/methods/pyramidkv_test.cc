#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

TEST(PyramidKv, Contract) {
  check_contract({.method = "pyramidkv:budget=64", .any_chunking = false});
}

TEST(PyramidKv, ChoosesAsSnapKvDoes) {
  const HeadStream stream = random_stream(500, 4, 2);
  auto snap = make_summary(setup_of("snapkv:budget=99", 60, 4, Protocol::prefill, 500));
  auto pyramid = make_summary(setup_of("pyramidkv:budget=99", 60, 4, Protocol::prefill, 500));
  snap->absorb(stream.block(0, 500));
  pyramid->absorb(stream.block(0, 500));
  expect_same_kept(*snap, *pyramid);
}

// The formulas of the published implementation, written out, but for its step between layers:
// rounded down there, it spends more than the budget; here each layer rounds its own share down.
TEST(PyramidKv, LayersShareAsTheFormulasSay) {
  const int layers = 32;
  for (std::int64_t n : {300, 2000, 10000}) {
    for (std::int64_t budget : {64, 96, 256, 1024}) {
      const std::int64_t w = 32;
      const std::int64_t b = budget - w;
      std::int64_t low = b / 20;
      std::int64_t high = 2 * b - low;
      if (high >= n - w) {
        high = n - w;
        low = std::max<std::int64_t>(0, 2 * b - high);
      }
      const double step = static_cast<double>(high - low) / (layers - 1);
      const Policy policy = Policy::parse("pyramidkv:budget=" + std::to_string(budget));
      for (int layer : {0, 1, 7, 31}) {
        if (budget >= n) continue;
        const Budget parts =
            policy.budget(static_cast<std::size_t>(n), Protocol::prefill, layer, layers);
        EXPECT_EQ(parts.window, 32u);
        EXPECT_EQ(static_cast<std::int64_t>(parts.summary),
                  high - static_cast<std::int64_t>(std::ceil(layer * step - 1e-9)))
            << "n " << n << " budget " << budget << " layer " << layer;
      }
    }
  }
}

TEST(PyramidKv, LayersTogetherKeepNoMoreThanUniformOnes) {
  const Policy policy = Policy::parse("pyramidkv:budget=256");
  for (int layers : {1, 2, 12, 32}) {
    std::size_t sum = 0;
    for (int l = 0; l < layers; ++l)
      sum += policy.budget(8000, Protocol::prefill, l, layers).total();
    // The step is rounded down: up to (layers - 1) / 2 entries a layer too many.
    EXPECT_LE(sum,
              static_cast<std::size_t>(layers) * (256u + static_cast<std::size_t>(layers) / 2));
  }
}

}  // namespace
}  // namespace ballast::test
