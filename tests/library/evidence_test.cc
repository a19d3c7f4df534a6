#include "library/evidence.h"

#include <gtest/gtest.h>

#include <array>

namespace ballast::test {
namespace {

AnswerEvidence answer(double score, std::initializer_list<float> chances) {
  AnswerEvidence out{.score = score, .near = 1};
  for (const float chance : chances) out.add(chance);
  return out;
}

TEST(Evidence, IsTheMeanAndTheLeastChance) {
  const AnswerEvidence one = answer(3, {-0.5f, -1.5f, -1.0f});
  EXPECT_FLOAT_EQ(one.certainty, -1.0f);
  EXPECT_FLOAT_EQ(one.least, -1.5f);
  EXPECT_EQ(one.tokens, 3u);
}

TEST(Evidence, TheLikelierAnswerWinsWhereWordsDoNotTell) {
  const std::array sure{answer(5, {-2.0f, -1.5f}), answer(5, {-0.1f, -0.2f})};
  EXPECT_EQ(best_answer(sure), 1u);
}

TEST(Evidence, TheBetterFoundSectionWinsWhereAnswersAreAsLikely) {
  const std::array found{answer(2, {-0.3f}), answer(9, {-0.35f})};
  EXPECT_EQ(best_answer(found), 1u);
}

TEST(Evidence, OthersAreAskedAsLongAsTheyMayBeat) {
  const std::array first{answer(8, {-0.3f})};
  EXPECT_TRUE(may_be_beaten(first, 8));
  EXPECT_TRUE(may_be_beaten(first, 5));   // by a certain answer: 0.5 ln(5/8) = -0.24
  EXPECT_FALSE(may_be_beaten(first, 4));  // -0.35
  const std::array second{answer(8, {-0.9f}), answer(6, {0.0f})};
  EXPECT_FALSE(may_be_beaten(second, 5.9));
  const std::array unsure{answer(8, {-0.9f})};
  EXPECT_TRUE(may_be_beaten(unsure, 0.1));  // two may be joined
}

TEST(Evidence, AnAnswerInOtherWordsThanTheSectionsIsNotSupported) {
  AnswerEvidence made_up = answer(5, {-0.1f});
  made_up.missing = 1;
  EXPECT_FALSE(is_supported(made_up));
  EXPECT_EQ(best_answer(std::array{made_up, answer(4, {-0.3f})}), 1u);
}

TEST(Evidence, AnAnswerFarFromTheQuestionsWordsIsNotSupported) {
  AnswerEvidence one = answer(5, {-0.1f});
  const std::string_view text =
      "The tenant pays. The roof is red. The rent is due. It is 60 florins.";
  one.compare(text, "What is the rent?", "60 florins");
  EXPECT_TRUE(is_supported(one));
  one.compare(text, "Which appliance explodes?", "60 florins");
  EXPECT_FALSE(is_supported(one));
}

TEST(Evidence, AnUnlikelyAnswerIsNotSupported) {
  EXPECT_TRUE(is_supported(answer(5, {-0.1f, -0.2f})));
  EXPECT_FALSE(is_supported(answer(5, {-3.0f, -2.0f})));
  EXPECT_FALSE(is_supported({}));
}

}  // namespace
}  // namespace ballast::test
