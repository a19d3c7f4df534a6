#include "documents/sections.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ballast::test {
namespace {

/// A token a word.
std::size_t words(std::string_view text) {
  std::size_t count = 0;
  bool in = false;
  for (char c : text) {
    const bool blank = c == ' ' || c == '\n';
    count += !blank && !in ? 1u : 0u;
    in = !blank;
  }
  return count;
}

constexpr SectionSizes kSizes{.good = 80, .most = 100};

/// Every byte is in one section, and none is too long.
void expect_whole(std::string_view text, const std::vector<Section>& sections) {
  std::size_t at = 0;
  for (const Section& one : sections) {
    EXPECT_EQ(one.begin, at);
    EXPECT_LT(one.begin, one.end);
    EXPECT_LE(words(text.substr(one.begin, one.end - one.begin)), kSizes.most);
    at = one.end;
  }
  EXPECT_EQ(at, text.size());
}

std::string paragraph(int number, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format("word{}of{} ", i, number);
  return out + "end.\n\n";
}

TEST(Sections, AShortTextIsOne) {
  EXPECT_TRUE(divide(" \n", words, kSizes).empty());
  const std::string text = "Lease\n\nThe tenant pays.";
  const std::vector<Section> all = divide(text, words, kSizes);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0], (Section{0, text.size(), "Lease", 4}));
}

TEST(Sections, BeginAtHeadingsAndHaveTheirTitles) {
  std::string text = "# Manual\n\n";
  for (int i = 1; i <= 4; ++i) {
    text += fmt::format("## {}. Part {}\n\n", i, i);
    for (int p = 0; p < 3; ++p) text += paragraph(i, 25);
  }
  const std::vector<Section> all = divide(text, words, kSizes);
  expect_whole(text, all);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1].title, "2. Part 2");
  EXPECT_EQ(text.substr(all[3].begin, 13), "## 4. Part 4\n");
}

TEST(Sections, APageBeginsWithItsName) {
  std::string text;
  for (int i = 1; i <= 6; ++i) {
    text += fmt::format("=== a.pdf, page {} ===\n\n", i) + paragraph(i, 70);
  }
  const std::vector<Section> all = divide(text, words, kSizes);
  expect_whole(text, all);
  ASSERT_EQ(all.size(), 6u);
  for (const Section& one : all) EXPECT_EQ(text.substr(one.begin, 4), "=== ");
}

TEST(Sections, NoParagraphIsTooLong) {
  for (const std::string& unit : {std::string("word "), std::string("line of words\n")}) {
    std::string text;
    while (text.size() < 20000) text += unit;
    expect_whole(text, divide(text, words, kSizes));
  }
  // A word as long as the text, of characters of two bytes.
  std::string text;
  while (text.size() < 4000) text += "ä";
  const auto letters = [](std::string_view part) { return part.size() / 2; };
  for (const Section& one : divide(text, letters, kSizes)) {
    EXPECT_LE(one.tokens, kSizes.most);
    EXPECT_EQ(one.begin % 2, 0u);
  }
}

TEST(Sections, ATitleIsTheFirstHeading) {
  EXPECT_EQ(title_of("Debian Policy\n=============\n\nText."), "Debian Policy");
  EXPECT_EQ(title_of("=== a.pdf, page 1 ===\n\nHandbook\n\nText."), "Handbook");
  EXPECT_EQ(title_of("A sentence stands here."), "");
  EXPECT_EQ(title_of("Überblick\n\nText."), "Überblick");
  EXPECT_EQ(title_of("\u00a0\u00a0 $ dpkg --compare\n\nText."), "");
  EXPECT_EQ(title_of(""), "");
}

}  // namespace
}  // namespace ballast::test
