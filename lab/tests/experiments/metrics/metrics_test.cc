#include "experiments/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/metrics/python_text.h"
#include "support.h"

namespace ballast {
namespace {

using Texts = std::vector<std::string>;

TEST(PythonText, WhitespaceDigitsAndCaseAreUnicode) {
  EXPECT_EQ(split_whitespace(" a\tb\xc2\xa0"
                             "c\xe3\x80\x80\x1f d\xc2\x85"),
            (Texts{"a", "b", "c", "d"}));
  EXPECT_EQ(split_whitespace(" \n"), Texts{});
  EXPECT_EQ(split_at("", '.'), Texts{""});
  EXPECT_EQ(split_at(".a.", '.'), (Texts{"", "a", ""}));
  EXPECT_EQ(strip("\xe2\x80\x83 a b \n"), "a b");
  EXPECT_EQ(strip(" \n"), "");
  EXPECT_EQ(to_lower("ΟΔΟΣ É"), "οδος é");
  EXPECT_EQ(find_numbers("a12b٣٤,007"), (Texts{"12", "٣٤", "007"}));
  EXPECT_EQ(first_line("\n\nab\ncd"), "ab");
  EXPECT_EQ(first_line(""), "");
  EXPECT_EQ(count_code_points("né\xff"), 3u);
  EXPECT_EQ(replace_all("a{x}b{x}", "{x}", "{x}{x}"), "a{x}{x}b{x}{x}");
}

TEST(QaF1, NormalisesAsSquadDoes) {
  EXPECT_EQ(normalize_answer("The  Cat's, a\tMAT!"), "cats mat");
  EXPECT_EQ(normalize_answer("an A the"), "");
  EXPECT_EQ(normalize_answer("theatre a_b a-n"), "theatre ab");  // punctuation goes before articles
  EXPECT_EQ(normalize_answer("Thé the"), "thé");
  EXPECT_EQ(normalize_answer("“quoted”"), "“quoted”");  // only ASCII punctuation goes
}

TEST(QaF1, CountsSharedWordsWithTheirMultiplicity) {
  EXPECT_DOUBLE_EQ(qa_f1("The cat sat.", "a cat sat"), 1.0);
  EXPECT_DOUBLE_EQ(qa_f1("cat", "cat dog"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(qa_f1("no no no", "no"), 0.5);
  EXPECT_DOUBLE_EQ(qa_f1("no no", "no no dog"), 0.8);
  EXPECT_DOUBLE_EQ(qa_f1("ΟΔΟΣ", "οδος"), 1.0);
  EXPECT_DOUBLE_EQ(qa_f1("", "x"), 0.0);
  EXPECT_DOUBLE_EQ(qa_f1("x", ""), 0.0);
  EXPECT_DOUBLE_EQ(qa_f1("the", "an"), 0.0);  // nothing is left of either
}

TEST(ClassificationScore, SharesTheScoreAmongTheNamedClasses) {
  const Texts classes = {"Food", "Color", "Color of hair", "Sport"};
  EXPECT_DOUBLE_EQ(classification_score("Type: Food", "Food", classes), 1.0);
  EXPECT_DOUBLE_EQ(classification_score("Food or Sport", "Food", classes), 0.5);
  EXPECT_DOUBLE_EQ(classification_score("Sport", "Food", classes), 0.0);
  EXPECT_DOUBLE_EQ(classification_score("", "Food", classes), 0.0);
  EXPECT_DOUBLE_EQ(classification_score("food", "Food", classes), 0.0);
  // "Color" is part of the true name, and does not count against it.
  EXPECT_DOUBLE_EQ(classification_score("Color of hair", "Color of hair", classes), 1.0);
}

TEST(ClassificationScore, SkipsTheClassAfterARemovedOneAsTheOfficialLoopDoes) {
  const Texts classes = {"a", "ab", "abc"};
  // "a" is removed, "ab" skipped: two are left.
  EXPECT_DOUBLE_EQ(classification_score("abc", "abc", classes), 0.5);
}

TEST(RetrievalScore, IsTheShareOfRightNumbers) {
  EXPECT_DOUBLE_EQ(retrieval_score("Paragraph 12", "Paragraph 12"), 1.0);
  EXPECT_DOUBLE_EQ(retrieval_score("12 or 13, or 12", "Paragraph 12"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(retrieval_score("Paragraph 1", "Paragraph 12"), 0.0);
  EXPECT_DOUBLE_EQ(retrieval_score("012", "Paragraph 12"), 0.0);
  EXPECT_DOUBLE_EQ(retrieval_score("", "Paragraph 12"), 0.0);
  EXPECT_DOUBLE_EQ(retrieval_score("3", "Paragraph x, Paragraph 3"), 1.0);
  EXPECT_THAT(test::error_of([] { retrieval_score("3", "three"); }),
              testing::HasSubstr("\"three\""));
}

TEST(CountScore, IsTheShareOfRightNumbers) {
  EXPECT_DOUBLE_EQ(count_score("There are 8.", "8"), 1.0);
  EXPECT_DOUBLE_EQ(count_score("8 of 10", "8"), 0.5);
  EXPECT_DOUBLE_EQ(count_score("eight", "8"), 0.0);
  EXPECT_DOUBLE_EQ(count_score("8 or ٨", "8"), 0.5);  // compared as texts
}

TEST(CodeSimilarity, TakesTheFirstLineThatLooksLikeCode) {
  EXPECT_DOUBLE_EQ(code_similarity("\n```python\n# note\n// note\nx = 1\ny = 2", "x = 1"), 1.0);
  EXPECT_DOUBLE_EQ(code_similarity("return x + 1\nmore", "return x + 2"), 0.92);
  EXPECT_DOUBLE_EQ(code_similarity("# only a note", "x"), 0.0);
  EXPECT_DOUBLE_EQ(code_similarity("", ""), 1.0);
}

TEST(TextRatio, AgreesWithDifflib) {
  EXPECT_DOUBLE_EQ(text_ratio("abcd", "bcde"), 0.75);
  EXPECT_DOUBLE_EQ(text_ratio("this is a test", "this is a test!"), 0.97);
  EXPECT_DOUBLE_EQ(text_ratio("aé", "aè"), 0.5);
  EXPECT_DOUBLE_EQ(text_ratio("", "a"), 0.0);
  EXPECT_DOUBLE_EQ(text_ratio("", ""), 1.0);
  EXPECT_DOUBLE_EQ(text_ratio("abcdefgh",
                              "abcdefg"
                              "x"),
                   0.88);  // 0.875: half to even
  // Of the 201 characters of b, only the last is not "popular", and a has none of it.
  std::string a, b;
  for (int i = 0; i < 100; ++i) a += "ba", b += "ab";
  EXPECT_DOUBLE_EQ(text_ratio(a, b + "c"), 0.0);
  EXPECT_DOUBLE_EQ(text_ratio(a.substr(0, 100), b.substr(0, 100)), 0.99);
}

TEST(ToolCall, IsRightByItsNameAndArguments) {
  const char* expected = R"({"name": "go", "arguments": {"to": "Rome", "days": 2}})";
  EXPECT_TRUE(call_is_right(expected, expected));
  EXPECT_TRUE(
      call_is_right("```json\n{\"arguments\": {\"days\": 2, \"to\": \"Rome\"}, \"name\": \"go\", "
                    "\"id\": 1}\n``` {",
                    expected));
  EXPECT_FALSE(
      call_is_right(R"({"name": "go", "arguments": {"to": "Rome", "days": "2"}})", expected));
  EXPECT_FALSE(call_is_right(R"({"name": "go", "arguments": {"to": "Rome"}})", expected));
  EXPECT_FALSE(
      call_is_right(R"({"name": "stay", "arguments": {"to": "Rome", "days": 2}})", expected));
  for (const char* none :
       {"", "go", "{", "{}", "[{\"name\": \"go\"}]", R"({"name": "go", "argum)"}) {
    EXPECT_FALSE(call_is_right(none, expected)) << none;
  }
}

TEST(LineNumber, IsTheLastInTheAnswer) {
  EXPECT_EQ(last_number("The number is 12, not 7."), "7");
  EXPECT_EQ(last_number("<0042>"), "42");
  EXPECT_EQ(last_number("000"), "0");
  EXPECT_EQ(last_number("٠٣٤"), "34");  // read as numbers
  EXPECT_EQ(last_number("none"), std::nullopt);
  EXPECT_TRUE(line_is_right("line 3: <2416>", "2416"));
  EXPECT_TRUE(line_is_right("02416.", "2416"));
  EXPECT_FALSE(line_is_right("2416 in line 7", "2416"));
  EXPECT_FALSE(line_is_right("24161", "2416"));
  EXPECT_FALSE(line_is_right("", "2416"));
}

TEST(StringMatch, LooksForReferencesWhateverTheirCase) {
  const Texts two = {"Alpha", "ÉTÉ"};
  EXPECT_DOUBLE_EQ(string_match_all("alphabet and été", two), 1.0);
  EXPECT_DOUBLE_EQ(string_match_all("alpha", two), 0.5);
  EXPECT_DOUBLE_EQ(string_match_part("alpha", two), 1.0);
  EXPECT_DOUBLE_EQ(string_match_part("beta", two), 0.0);
  EXPECT_DOUBLE_EQ(string_match_all("", two), 0.0);
  EXPECT_DOUBLE_EQ(string_match_all("a\x01"
                                    "b",
                                    Texts{"a\nb"}),
                   1.0);
  EXPECT_THAT(test::error_of([] { string_match_all("a", {}); }),
              testing::HasSubstr("no reference"));
}

TEST(Choice, TakesTheFirstOfTies) {
  EXPECT_EQ(best_choice(std::vector<double>{-2, -1, -1}), 1u);
  EXPECT_EQ(best_choice(std::vector<double>{-1, -1}), 0u);
  EXPECT_THAT(test::error_of([] { best_choice({}); }), testing::HasSubstr("no choice"));
}

TEST(Choice, LengthCountsCharacters) {
  // -4/4 against -6/8: the longer wins; with é counted as its two bytes the first would.
  EXPECT_EQ(best_choice_by_length(std::vector<double>{-4, -6}, Texts{"éééé", "abcdefgh"}), 1u);
  EXPECT_EQ(best_choice(std::vector<double>{-4, -6}), 0u);
  EXPECT_THAT(test::error_of([] { best_choice_by_length(std::vector<double>{-1}, Texts{""}); }),
              testing::HasSubstr("choice 1 is empty"));
}

TEST(SelfBleu, OfEqualTextsIsOneAndOfUnrelatedZero) {
  EXPECT_NEAR(self_bleu(Texts{"the cat sat on the mat", "the cat sat on the mat"}), 1.0, 1e-12);
  EXPECT_DOUBLE_EQ(self_bleu(Texts{"a b", "c d"}), 0.0);
  EXPECT_DOUBLE_EQ(self_bleu(Texts{"", "a"}), 0.0);
  EXPECT_THAT(test::error_of([] { self_bleu(Texts{"a"}); }), testing::HasSubstr("two are needed"));
}

TEST(SelfBleu, IsTheGeometricMeanOfClippedPrecisions) {
  // Each way 4/5, 3/4, 2/3, 1/2 of the n-grams are shared.
  EXPECT_NEAR(self_bleu(Texts{"a b c d e", "a b c d f"}), std::pow(4. / 5 * 3 / 4 * 2 / 3 / 2, .25),
              1e-12);
  // "a a" against "a": one of two clipped, no pair shared (0.1 of 1), and of 3 and 4 words none
  // exist (0.1 of 1 each); longer than the other text, so no penalty. "a" against "a a": 1 of 1,
  // then nothing, with penalty e^(1 - 2).
  const double first = std::pow(0.5 * 0.1 * 0.1 * 0.1, 0.25);
  const double second = std::exp(-1.0) * std::pow(0.1 * 0.1 * 0.1, 0.25);
  EXPECT_NEAR(self_bleu(Texts{"a a", "a"}), (first + second) / 2, 1e-12);
  // Three texts, checked with NLTK's sentence_bleu.
  EXPECT_NEAR(self_bleu(Texts{"the cat sat on the mat today", "the cat sat on a mat", "dogs bark"}),
              0.2965075922159274, 1e-12);
  // Punctuation stands alone.
  EXPECT_NEAR(self_bleu(Texts{"a, b c.", "a , b c ."}), 1.0, 1e-12);
}

}  // namespace
}  // namespace ballast
