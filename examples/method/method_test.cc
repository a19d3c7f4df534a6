// The tests that every method of Ballast passes, for key-norm.
#include <ballast/testing/conformance.h>
#include <ballast/testing/summary_contract.h>

#include "key_norm.h"

namespace ballast::test {

INSTANTIATE_TEST_SUITE_P(KeyNorm, EveryMethod, testing::ValuesIn(conformance_cases({"key-norm"})),
                         conformance_name);

TEST(KeyNorm, Contract) { check_contract({.method = "key-norm"}); }

TEST(KeyNorm, KeepsTheShortestKeys) {
  HeadStream stream = random_stream(5, 4, 1);
  const float lengths[] = {3, 1, 5, 2, 4};
  for (std::size_t t = 0; t < 5; ++t) {
    for (float& x : stream.keys[t]) x = 0;
    stream.keys[t][0] = lengths[t];
  }
  const auto kept = [&](const char* method) {
    auto summary = make_summary(setup_of(method, 2, 4));
    absorb_in_pieces(*summary, stream, 2, 1);
    return kept_positions(*summary);
  };
  EXPECT_THAT(kept("key-norm"), testing::ElementsAre(1, 3));
  EXPECT_THAT(kept("key-norm:keep=long"), testing::ElementsAre(2, 4));
}

}  // namespace ballast::test

int main(int argc, char** argv) {
  register_key_norm();
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
