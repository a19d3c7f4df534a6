// Sentences, their places, and those that an answer rests on.
#include "documents/passages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "documents/document.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using testing::ElementsAre;

std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> out;
  for (const Passage& p : sentences(text)) out.push_back(text.substr(p.begin, p.end - p.begin));
  return out;
}

TEST(Sentences, EndAtTheirMarksAndAtEmptyLines) {
  EXPECT_THAT(sentences_of("One. \"Two.\" he said.\n\nThree\n\n\n  four!  "),
              ElementsAre("One.", "\"Two.\" he said.", "Three", "four!"));
  EXPECT_THAT(sentences_of(" \n\n "), ElementsAre());
  EXPECT_THAT(sentences_of("彼は来た。私は見た。"), ElementsAre("彼は来た。", "私は見た。"));
}

TEST(Sentences, GoOnAfterAnAbbreviation) {
  EXPECT_THAT(sentences_of("Mr. Osk came at 7.30 with Mrs. Pell. He left."),
              ElementsAre("Mr. Osk came at 7.30 with Mrs. Pell.", "He left."));
}

TEST(Sentences, GoOnInTheNextLineOfProseButNotOfAList) {
  EXPECT_THAT(sentences_of("The tenant keeps the stairs of the house\nclean in winter, and the "
                           "whole of the yard.\nAlways. Even on\n\n"
                           "Rent: 85 florins\nDeposit: none\n\n"
                           "- a first item that is as long as a line of prose\n- a second item\n"
                           "3. a third item that is as long as a line of prose\n4. the last\n"),
              ElementsAre("The tenant keeps the stairs of the house\nclean in winter, and the "
                          "whole of the yard.",
                          "Always.", "Even on", "Rent: 85 florins", "Deposit: none",
                          "- a first item that is as long as a line of prose", "- a second item",
                          "3. a third item that is as long as a line of prose", "4. the last"));
  EXPECT_EQ(sentences("line 10: the number of the record is 9379.\n"
                      "line 11: the number of the record is 7325.\n")
                .size(),
            2u);
  // Lines that end for another reason than a margin, long as they are.
  EXPECT_EQ(sentences("line gothic-bicycle-and-horse-cart: content is <1367>\n"
                      "line guard: content is <5151>\nline pocket: content is <41091>\n"
                      "line dormant-flood: content is <17657>\n")
                .size(),
            4u);
}

TEST(Place, IsTheLineOfTheTextOrOfThePage) {
  EXPECT_EQ(place_of("one\ntwo\nthree", 9), (Place{"", 0, 3}));
  EXPECT_EQ(place_of("one", 0), (Place{"", 0, 1}));
  const std::string text = "=== a.pdf, page 3 ===\n\none\ntwo\n\n=== b.txt ===\n\nthree\n";
  EXPECT_EQ(place_of(text, text.find("two")), (Place{"a.pdf", 3, 2}));
  EXPECT_EQ(place_of(text, text.find("three")), (Place{"b.txt", 0, 1}));
  EXPECT_EQ(to_string(Place{"a.pdf", 3, 2}), "a.pdf, page 3, line 2");
  EXPECT_EQ(to_string(Place{"", 0, 7}), "line 7");
  // No name of a part.
  EXPECT_EQ(place_of("x\n=== b.txt ===\n\nthree", 18), (Place{"", 0, 4}));
}

TEST(Place, ANameOfAPartIsNoLineOfAText) {
  // As a wiki writes its headings.
  const std::string wiki =
      "Small.\n\n=== The light ===\n\nIt is green.\n\n=== x, page 9 ===\n\nEnd.";
  const std::string alone = joined_text({{"wiki.txt", wiki}}, false);
  EXPECT_EQ(place_of(alone, alone.find("It is")), (Place{"", 0, 5}));
  EXPECT_EQ(place_of(alone, alone.find("End")), (Place{"", 0, 9}));
  const std::string two =
      joined_text({{"wiki.txt", wiki}, {"b.txt", "=== c.txt ===\n\nTwo."}}, true);
  EXPECT_EQ(place_of(two, two.find("It is")), (Place{"wiki.txt", 0, 5}));
  EXPECT_EQ(place_of(two, two.find("End")), (Place{"wiki.txt", 0, 9}));
  EXPECT_EQ(place_of(two, two.find("Two")), (Place{"b.txt", 0, 3}));
}

TEST(Place, ANameMayEndInAPage) {
  const std::string text = joined_text({{"March, page 7", "One."},
                                        {"v2, page 7.txt", "Two."},
                                        {"\"quoted\"", "Three."},
                                        {"a, page 2", "Four.", 5},
                                        {"line\nend ===", "Five."}},
                                       true);
  EXPECT_EQ(place_of(text, text.find("One")), (Place{"March, page 7", 0, 1}));
  EXPECT_EQ(place_of(text, text.find("Two")), (Place{"v2, page 7.txt", 0, 1}));
  EXPECT_EQ(place_of(text, text.find("Three")), (Place{"\"quoted\"", 0, 1}));
  EXPECT_EQ(place_of(text, text.find("Four")), (Place{"a, page 2", 5, 1}));
  EXPECT_EQ(place_of(text, text.find("Five")), (Place{"line end ===", 0, 1}));
}

TEST(Place, AWebPageHasNoLines) {
  for (const char* name : {"a.html", "b.HTM", "c.docx", "d.odt"}) {
    EXPECT_EQ(to_string(Place{name, 0, 7}), name);
  }
  EXPECT_EQ(to_string(Place{"a.txt", 0, 7}), "a.txt, line 7");
}

class Cite : public testing::Test {
 protected:
  /// A token a byte.
  Cite() : tokenizer_(vocabulary()) {}
  static Vocabulary vocabulary() {
    Vocabulary v;
    v.pre = "gpt-2";
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      v.pieces.push_back(to_byte_alphabet({&c, 1}));
    }
    return v;
  }
  /// Attention to the bytes of `parts`, so much each.
  std::vector<Citation> cite(const std::string& text, std::size_t before,
                             const std::vector<std::pair<std::string, float>>& parts) const {
    const std::vector<Token> tokens = tokenizer_.encode(text);
    EXPECT_EQ(tokens.size(), text.size());
    std::vector<float> attention(tokens.size());
    for (const auto& [part, share] : parts) attention[text.find(part)] += share;
    return ballast::cite(tokenizer_, tokens, before, attention);
  }
  Tokenizer tokenizer_;
};

TEST_F(Cite, NamesTheSentencesLookedAtMost) {
  const std::string text = "User: =\n\nAnn lives\nhere. Bob\nlives there. Cy is gone. Di is not.";
  const auto found = cite(text, 7, {{"User", 9.0f}, {"there", 0.4f}, {"Ann", 0.2f}, {"Cy", 0.01f}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].text, "lives there.");
  EXPECT_EQ(found[0].place.line, 5u);
  EXPECT_NEAR(found[0].share, 0.4 / 0.61, 1e-6);
  EXPECT_EQ(found[0].first_token, text.find("lives there"));
  EXPECT_EQ(found[0].end_token, text.find(" Cy"));
  EXPECT_EQ(found[1].text, "Ann lives");
}

TEST_F(Cite, NamesNothingWhereLittleWasLookedUp) {
  EXPECT_TRUE(cite("Ann lives here. Bob too.", 0, {{"Ann", 0.015f}}).empty());
  EXPECT_TRUE(cite("", 0, {}).empty());
}

TEST_F(Cite, NamesNoNamesOfParts) {
  const auto found =
      cite("=== a.txt ===\n\nAnn lives here.\n", 0, {{"a.txt", 0.9f}, {"Ann", 0.1f}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text, "Ann lives here.");
  EXPECT_EQ(found[0].place, (Place{"a.txt", 0, 1}));
}

TEST(Sentences, AListWithoutFullStopsIsItsLines) {
  std::string text = "The record begins:\n\n";
  for (int i = 100; i < 200; ++i)
    text += fmt::format("line {}: the register content is <{}>\n", i, i * i);
  const std::vector<Passage> all = sentences(text);
  ASSERT_EQ(all.size(), 101u);
  EXPECT_EQ(text.substr(all[50].begin, all[50].end - all[50].begin),
            "line 149: the register content is <22201>");
}

}  // namespace
}  // namespace ballast
