#include "report/terminal.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
