#include "report/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "report/terminal.h"
#include "support.h"

namespace ballast {
namespace {

TEST(DisplayWidth, CountsTerminalColumns) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("µs ×"), 4u);
  EXPECT_EQ(display_width("e\xCC\x81"), 1u);                 // e with a combining acute accent
  EXPECT_EQ(display_width("\xE6\xBC\xA2\xE5\xAD\x97"), 4u);  // two wide characters
  EXPECT_EQ(display_width("a\xFFz"), 3u);                    // a broken byte shows as one
  EXPECT_EQ(display_width("\xE2\x80\x8B"), 0u);              // zero width space
}

TEST(Table, AlignsByDisplayWidth) {
  Table table({{"name"}, {"size", Align::right}});
  table.add({"µ", "5"});
  table.add({"long name", "1,234"});
  EXPECT_EQ(table.to_string(),
            "name        size\n"
            "---------  -----\n"
            "µ              5\n"
            "long name  1,234\n");
}

TEST(Table, NoTrailingBlanksAndGaps) {
  Table table({{"a"}, {"b"}});
  table.add({"1", ""});
  table.add_gap();
  table.add({"2", "x"});
  table.add_gap();  // behind the last row: nothing to separate
  EXPECT_EQ(table.to_string(), "a  b\n-  -\n1\n\n2  x\n");
}

TEST(Table, AGapAfterEachOfManyRows) {
  constexpr std::size_t kRows = 1'000'000;
  Table table({{"a"}});
  std::string expected = "a\n-\n";
  for (std::size_t r = 0; r < kRows; ++r) {
    if (r > 0) table.add_gap();
    table.add({"x"});
    expected += r > 0 ? "\nx\n" : "x\n";
  }
  EXPECT_TRUE(table.to_string() == expected);
}

// Of many rows one would make each as long as itself.
TEST(Table, PadsNoFurtherThanAThousandColumns) {
  Table table({{"name"}, {"n", Align::right}});
  const std::string name(5000, 'x');
  table.add({name, "1"});
  table.add({"y", "2"});
  const std::string expected = "name" + std::string(996, ' ') + "  n\n" + std::string(1000, '-') +
                               "  -\n" + name + "  1\ny" + std::string(999, ' ') + "  2\n";
  EXPECT_EQ(table.to_string(), expected);
}

TEST(Table, WithoutRows) {
  EXPECT_EQ(Table({{"a"}, {"bc", Align::right}}).to_string(), "a  bc\n-  --\n");
}

TEST(Table, RefusesRowsOfAnotherLength) {
  Table table({{"a"}, {"b"}});
  EXPECT_EQ(test::error_of([&] { table.add({"1"}); }), "a row of 1 cells in a table of 2 columns");
}

TEST(Table, CsvHasPlainNumbers) {
  Table table({{"part"}, {"share", Align::right}});
  table.add_cells({"sink", {"13.7%", 0.13671875}});
  table.add_cells({std::string("window"), {"–", NAN}});
  table.add({"1,234", "x"});
  EXPECT_EQ(table.to_csv(), "part,share\nsink,0.13671875\nwindow,\n\"1,234\",x\n");
  EXPECT_THAT(table.to_string(), ::testing::HasSubstr("sink    13.7%\n"));
}

TEST(Table, FitsAWidth) {
  Table table({{"method"}, {"keeps"}, {"n", Align::right}});
  table.add({"h2o", "heavy hitters and recent tokens", "12"});
  EXPECT_EQ(table.to_string(30),
            "method  keeps                n\n"
            "------  ------------------  --\n"
            "h2o     heavy hitters and   12\n"
            "        recent tokens\n");
  // Columns of numbers continue below, each part with the first column.
  Table numbers({{"layer"}, {"a", Align::right}, {"b", Align::right}});
  numbers.add({"0", "1234567", "7654321"});
  EXPECT_EQ(numbers.to_string(16),
            "layer        a\n-----  -------\n0      1234567\n\n"
            "layer        b\n-----  -------\n0      7654321\n");
}

TEST(Table, EachPartNamesItsRows) {
  Table table({{"method", Align::left, true},
               {"prompt", Align::right, true},
               {"a", Align::right},
               {"b", Align::right}});
  table.add({"exact", "64", "1234567", "7654321"});
  table.add_gap();
  table.add({"exact", "128", "12345678", ""});
  table.add({"none", "128", "", ""});
  EXPECT_EQ(table.to_string(24),
            "method  prompt         a\n------  ------  --------\n"
            "exact       64   1234567\n\n"
            "exact      128  12345678\nnone       128\n\n"
            "method  prompt        b\n------  ------  -------\n"
            "exact       64  7654321\n\n"
            "none       128\n");
  // No room for both and a number: one column names the row.
  EXPECT_EQ(table.to_string(22),
            "method,              a\nprompt\n------------  --------\n"
            "exact, 64      1234567\n\n"
            "exact, 128    12345678\nnone, 128\n\n"
            "method,             b\nprompt\n------------  -------\n"
            "exact, 64     7654321\n\n"
            "none, 128\n");
}

TEST(Table, AsCsvAndMarkdown) {
  Table table({{"name"}, {"n", Align::right}});
  table.add({"a,b \"c\"", "1"});
  table.add({"a|b", ""});
  EXPECT_EQ(table.to_csv(), "name,n\n\"a,b \"\"c\"\"\",1\na|b,\n");
  EXPECT_EQ(table.to_markdown(), "| name | n |\n|---|---:|\n| a,b \"c\" | 1 |\n| a\\|b |  |\n");
}

TEST(Wrap, EachLineOfAText) {
  EXPECT_EQ(wrap_lines("error  is small here\n\nshort\n", 14),
            "error  is\n       small\n       here\n\nshort\n");
  EXPECT_EQ(wrap_lines("no end of line", 80), "no end of line");
  EXPECT_EQ(wrap_lines("", 80), "");
}

TEST(Wrap, BreaksAtBlanksAndInLongLists) {
  EXPECT_EQ(wrap("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrap("one two three", 0), "one two three");
  EXPECT_EQ(wrap("  one two", 6, 2), "  one\n  two");
  EXPECT_EQ(wrap("a\n\nb c", 80), "a\n\nb c");
  EXPECT_EQ(wrap("exact;balancekv;uniform", 12), "exact;\nbalancekv;\nuniform");
  EXPECT_EQ(wrap("ballast run -m model.gguf x", 20, 4, " \\"),
            "ballast run -m \\\n    model.gguf x");
  EXPECT_EQ(wrap_note("score  is the share of right answers", 20),
            "score  is the share\n       of right\n       answers");
}

TEST(TerminalWidth, IsWhatColumnsSays) {
  ::setenv("COLUMNS", "123", 1);
  EXPECT_EQ(terminal_width(), 123u);
  for (const char* nonsense : {"", "x", "-5", "3"}) {
    ::setenv("COLUMNS", nonsense, 1);
    EXPECT_GE(terminal_width(), 20u);
  }
  ::unsetenv("COLUMNS");
}

}  // namespace
}  // namespace ballast
