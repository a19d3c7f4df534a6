// Which texts a question is about.
#include "documents/search.h"

#include <gmock/gmock.h>

#include <cmath>

namespace ballast::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Passages, TheTextWithTheRarestWordsIsFirst) {
  const std::vector<std::string_view> texts = {
      "The house is old. The garden of the house is wild.",
      "Rent is due on the first day. The lease ENDS in March, and the deposit comes back.",
      "The river is wide."};
  const std::vector<Found> found =
      find_passages(texts, "When does the lease end? ends, the lease", 9);
  ASSERT_EQ(found.size(), 3U);  // all have "the"
  EXPECT_EQ(found[0].text, 1U);
  EXPECT_GT(found[0].score, 2 * found[1].score);
  EXPECT_THAT(found[0].passage, StartsWith("The lease ENDS in March"));
  EXPECT_EQ(found[0].begin, texts[1].find("The lease"));
  EXPECT_EQ(find_passages(texts, "the lease", 1).size(), 1U);
  EXPECT_THAT(find_passages(texts, "Größe?", 9), testing::IsEmpty());
}

TEST(Passages, OfALongTextTheBestPassageCounts) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word ";
  text += "the needle is here";
  for (int i = 0; i < 500; ++i) text += " word";
  const std::vector<Found> found = find_passages(std::vector<std::string_view>{text}, "needle", 9);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].passage, HasSubstr("needle"));
  EXPECT_LT(found[0].passage.size(), 700U);
}

/// Okapi BM25 by hand: two passages of four words, a word that one of them has twice.
TEST(Passages, ScoresAreThoseOfBm25) {
  const std::vector<std::string_view> texts = {"fox and fox run", "dog and cat run"};
  const std::vector<Found> found = find_passages(texts, "fox", 9);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NEAR(found[0].score, std::log(1 + 1.5 / 1.5) * 2 * 2.2 / (2 + 1.2), 1e-12);
}

}  // namespace
}  // namespace ballast::test
