#include "report/terminal.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "report/table.h"

namespace ballast {
namespace {

TEST(TerminalText, KeepsWhatCanBeRead) {
  for (const char* text : {"", "plain", "two\nlines\tand a tab",
                           "Grüße, 你好, \u05e9\u05dc\u05d5\u05dd, 🙂", "a\u0301"}) {
    EXPECT_EQ(terminal_text(text), text);
  }
}

TEST(TerminalText, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(terminal_text("\033[2J\r\b\x7f"), "\\x1b[2J\\x0d\\x08\\x7f");
  EXPECT_EQ(terminal_text(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(terminal_text("\u009b2J"), "\\u{9b}2J");  // the other way to begin a sequence
  EXPECT_EQ(terminal_text("\u202eabc\u2069"), "\\u{202e}abc\\u{2069}");
}

TEST(TerminalText, EscapesBytesThatAreNoText) {
  EXPECT_EQ(terminal_text("a\xff"), "a\\xff");
  EXPECT_EQ(terminal_text("\xc3"), "\\xc3");
  EXPECT_EQ(terminal_text("\x9b"), "\\x9b");
  EXPECT_EQ(terminal_text("\xe2\x82z"), "\\xe2\\x82z");
}

/// What wrap() says of itself, one line at a time: a word that does not fit in a line of its own
/// breaks after its last sign that fits, else after its first one.
std::string slowly_wrapped(std::string line, std::size_t width, std::size_t indent) {
  std::string out, here;
  bool empty = true;  // no word stands here yet
  const auto end_line = [&] {
    out += here + "\n";
    here = std::string(indent, ' ');
    empty = true;
  };
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) break;
    const std::string blanks = line.substr(0, begin);
    const std::string word = line.substr(begin, line.find(' ', begin) - begin);
    if (indent + display_width(word) > width) {
      std::vector<std::size_t> cuts;
      for (std::size_t i = 1; i < word.size(); ++i) {
        if (std::string(";,/").find(word[i - 1]) != std::string::npos) cuts.push_back(i);
      }
      const auto fits = [&](std::size_t cut) {
        return display_width(here + blanks + word.substr(0, cut)) <= width;
      };
      while (cuts.size() > 1 && !fits(cuts.back())) cuts.pop_back();
      if (!cuts.empty() && (empty || fits(cuts.back()))) {
        here += blanks + word.substr(0, cuts.back());
        line.erase(0, begin + cuts.back());
        end_line();
        continue;
      }
    }
    if (!empty && display_width(here + blanks + word) > width) {
      end_line();
      line.erase(0, begin);
      continue;
    }
    here += blanks + word;
    empty = false;
    line.erase(0, begin + word.size());
  }
  return out + here;
}

TEST(Wrap, EqualsASlowReference) {
  std::mt19937 random(3);
  const std::vector<std::string> parts = {"a", "bc", ",",  ",",       ";",
                                          "/", " ",  "漢", "e\u0301", "\xff"};
  for (int n = 0; n < 20'000; ++n) {
    std::string text;
    for (std::size_t i = random() % 30; i > 0; --i) text += parts[random() % parts.size()];
    const std::size_t width = 1 + random() % 12, indent = random() % 4;
    ASSERT_EQ(wrap(text, width, indent), slowly_wrapped(text, width, indent))
        << "'" << text << "' " << width << " " << indent;
  }
}

TEST(Wrap, BreaksALongListInTheTimeOfItsLength) {
  std::string list, lines;
  for (int i = 0; i < 100'000; ++i) {
    list += "ab,";
    lines += i % 3 == 2 && i + 1 < 100'000 ? "ab,\n" : "ab,";
  }
  EXPECT_TRUE(wrap(list, 10) == lines);
  std::string commas, alone;
  for (int i = 0; i < 100'000; ++i) alone += i == 0 ? "," : "\n,";
  commas.assign(100'000, ',');
  EXPECT_TRUE(wrap(commas, 1) == alone);
}

}  // namespace
}  // namespace ballast
