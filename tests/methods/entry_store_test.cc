#include "ballast/entry_store.h"

#include <cmath>
#include <limits>

#include "ballast/serialize.h"
#include "ballast/testing/support.h"

namespace ballast::test {
namespace {

/// A store of one token at `position`, saved and loaded; the error, or "".
std::string loaded(Position position, float log_weight) {
  const Matrix rows = random_matrix(1, 4, 1);
  Block block;
  block.keys = block.values = view_f32(rows.view());
  block.first = position;
  SummarySetup setup;
  setup.key_dim = setup.value_dim = 4;
  EntryStore store(setup, 3), other = store.like(3);
  store.push(block, 0, log_weight);
  try {
    copy_saved(store, other);
  } catch (const Error& error) {
    return error.what();
  }
  EXPECT_EQ(other.size(), 1u);
  EXPECT_EQ(other.position(0), position);
  EXPECT_EQ(other.log_weight(0), log_weight);
  return "";
}

TEST(EntryStore, LoadsOnlyPositionsOfATextAndWeightsThatCanBe) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr Position kLast = std::numeric_limits<Position>::max();
  EXPECT_EQ(loaded(0, 0), "");
  EXPECT_EQ(loaded(kLast, -kInfinite), "");  // an entry that counts for nothing
  EXPECT_EQ(loaded(5, 20), "");
  for (Position bad : {-1, -2, std::numeric_limits<Position>::min()})
    EXPECT_THAT(loaded(bad, 0), testing::HasSubstr(std::to_string(bad)));
  for (float bad : {kInfinite, std::nanf(""), 2e9f})
    EXPECT_THAT(loaded(5, bad), testing::HasSubstr("log-weight"));
}

}  // namespace
}  // namespace ballast::test
