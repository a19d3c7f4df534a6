#include "experiments/metrics/rouge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"

namespace ballast {
namespace {

constexpr double kTolerance = 2e-8;  // the package adds 1e-8 to a denominator

void expect_scores(const RougeScores& scores, double one, double two, double l) {
  EXPECT_NEAR(scores.rouge_1, one, kTolerance);
  EXPECT_NEAR(scores.rouge_2, two, kTolerance);
  EXPECT_NEAR(scores.rouge_l, l, kTolerance);
}

TEST(RougeOfSets, ComparesWordsAsTheyStand) {
  expect_scores(rouge_of_sets("police killed the gunman", "police kill the gunman"), 0.75, 1. / 3,
                0.75);
  expect_scores(rouge_of_sets("a b", "a b"), 1, 1, 1);
  expect_scores(rouge_of_sets("A b", "a b"), 0.5, 0, 0.5);
  expect_scores(rouge_of_sets("été là", "été ici"), 0.5, 0, 0.5);
}

TEST(RougeOfSets, CountsARepeatedWordOnce) {
  expect_scores(rouge_of_sets("the the the", "the cat"), 2. / 3, 0, 2. / 3);
}

TEST(RougeOfSets, UnitesTheSubsequencesOfAllSentences) {
  // Sentences in another order cost pairs across their ends, and ROUGE-L nothing.
  expect_scores(
      rouge_of_sets("the cat sat on the mat. a dog ran", "a dog sat on the mat. the cat ran"), 1,
      0.625, 1);
  // Within a sentence order counts: the longest common subsequence of "a b" and "b a" is one word.
  expect_scores(rouge_of_sets("a b", "b a"), 1, 0, 0.5);
  // "a" or "b" is the longest, and the package takes "b". The second sentence adds a word, or none.
  expect_scores(rouge_of_sets("b a. a", "a b"), 1, 0, 1);
  expect_scores(rouge_of_sets("b a. b", "a b"), 1, 2. / 3, 0.5);
}

TEST(RougeOfSets, OfNothingIsNothing) {
  expect_scores(rouge_of_sets("", "x"), 0, 0, 0);
  expect_scores(rouge_of_sets("...", "x"), 0, 0, 0);
  expect_scores(rouge_of_sets("x", ""), 0, 0, 0);
  expect_scores(rouge_of_sets(" ", "x"), 0, 0, 0);
}

TEST(RougeOfSets, RefusesSentencesThatWouldTakeAllMemory) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "a ";
  EXPECT_THAT(test::error_of([&] { rouge_of_sets(text, text); }), testing::HasSubstr("too many"));
}

// Sentences are compared each with each: what they take is what the texts would as one.
TEST(RougeOfSets, RefusesTextsThatWouldTakeTooLong) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "a.";
  EXPECT_THAT(test::error_of([&] { rouge_of_sets(text, text); }), testing::HasSubstr("too many"));
}

TEST(RougeOfCounts, KnowsTheExampleOfItsPackage) {
  expect_scores(rouge_of_counts("The quick brown fox jumps over the lazy dog",
                                "The quick brown dog jumps on the log.", true),
                12. / 17, 4. / 15, 10. / 17);
}

TEST(RougeOfCounts, ClipsRepeatedWordsAndDropsWhatIsNotAscii) {
  expect_scores(rouge_of_counts("the the the", "the cat", false), 0.4, 0, 0.4);
  expect_scores(rouge_of_counts("été 12", "T, 12!", false), 1, 1, 1);
  expect_scores(rouge_of_counts("", "x", true), 0, 0, 0);
  expect_scores(rouge_of_counts("—", "x", true), 0, 0, 0);
  expect_scores(rouge_of_counts("x", "x", true), 1, 0, 1);
}

TEST(RougeOfCounts, StemsOnDemand) {
  expect_scores(rouge_of_counts("running dogs", "run dog", true), 1, 1, 1);
  expect_scores(rouge_of_counts("running dogs", "run dog", false), 0, 0, 0);
}

TEST(PorterStem, GivesThePublishedStems) {
  const std::pair<const char*, const char*> cases[] = {
      {"caresses", "caress"},    {"ponies", "poni"},
      {"ties", "tie"},           {"caress", "caress"},
      {"cats", "cat"},           {"agreed", "agre"},
      {"plastered", "plaster"},  {"bled", "bled"},
      {"motoring", "motor"},     {"sing", "sing"},
      {"conflated", "conflat"},  {"troubled", "troubl"},
      {"sized", "size"},         {"hopping", "hop"},
      {"tanned", "tan"},         {"falling", "fall"},
      {"hissing", "hiss"},       {"fizzed", "fizz"},
      {"failing", "fail"},       {"filing", "file"},
      {"happy", "happi"},        {"enjoy", "enjoy"},
      {"relational", "relat"},   {"conditional", "condit"},
      {"rational", "ration"},    {"vietnamization", "vietnam"},
      {"predication", "predic"}, {"operator", "oper"},
      {"feudalism", "feudal"},   {"decisiveness", "decis"},
      {"hopefulness", "hope"},   {"formaliti", "formal"},
      {"sensitiviti", "sensit"}, {"triplicate", "triplic"},
      {"formative", "form"},     {"electriciti", "electr"},
      {"electrical", "electr"},  {"goodness", "good"},
      {"revival", "reviv"},      {"allowance", "allow"},
      {"inference", "infer"},    {"airliner", "airlin"},
      {"adjustable", "adjust"},  {"defensible", "defens"},
      {"replacement", "replac"}, {"adoption", "adopt"},
      {"irritant", "irrit"},     {"communism", "commun"},
      {"activate", "activ"},     {"homologous", "homolog"},
      {"effective", "effect"},   {"bowdlerize", "bowdler"},
      {"probate", "probat"},     {"rate", "rate"},
      {"cease", "ceas"},         {"controll", "control"},
      {"roll", "roll"},          {"skies", "sky"},
      {"dying", "die"},          {"died", "die"},
      {"flies", "fli"},          {"geologi", "geolog"},
      {"logi", "logi"},          {"formally", "formal"},
  };
  for (const auto& [word, stem] : cases) EXPECT_EQ(porter_stem(word), stem) << word;
}

TEST(PorterStem, LeavesShortAndEndlessWords) {
  EXPECT_EQ(porter_stem(""), "");
  EXPECT_EQ(porter_stem("as"), "as");
  EXPECT_EQ(porter_stem("1990s"), "1990");
  const std::string endless(100000, 'y');
  EXPECT_EQ(porter_stem(endless + "s"), endless + "s");
}

}  // namespace
}  // namespace ballast
