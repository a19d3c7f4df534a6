// Answers on a terminal.
#include "cli/answering.h"

#include <gmock/gmock.h>

namespace ballast::cli {
namespace {

/// What comes of a text that is made in pieces of so many bytes, each a whole character.
std::string wrapped(std::size_t width, std::string_view text, std::size_t piece) {
  WordWrap words(width);
  std::string out;
  while (!text.empty()) {
    std::size_t end = std::min(piece, text.size());
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    out += words.push(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out + words.finish();
}

TEST(WordWrap, BreaksBetweenWords) {
  for (const std::size_t piece : {1u, 3u, 100u}) {
    EXPECT_EQ(wrapped(12, "The lease ends in November 2026.", piece),
              "The lease\nends in\nNovember\n2026.");
    EXPECT_EQ(wrapped(12, "one\n\n  - two three four", piece), "one\n\n  - two\nthree four");
    EXPECT_EQ(wrapped(12, "über größere Flüsse", piece), "über größere\nFlüsse");
    EXPECT_EQ(wrapped(12, "漢字漢字漢字漢字", piece), "漢字漢字漢字\n漢字");
    EXPECT_EQ(wrapped(12, "a https://example.org/long b", piece), "a\nhttps://example.org/long\nb");
    EXPECT_EQ(wrapped(0, "The lease ends in November 2026.", piece),
              "The lease ends in November 2026.");
  }
}

TEST(WordWrap, KeepsBackAWordAlone) {
  WordWrap words(20);
  EXPECT_EQ(words.push("The lea"), "The");
  EXPECT_EQ(words.push("se ends"), " lease");
  EXPECT_EQ(words.push(".\n"), " ends.\n");
  EXPECT_EQ(words.finish(), "");
}

}  // namespace
}  // namespace ballast::cli
