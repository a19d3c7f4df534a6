#include "report/table.h"

#include <gtest/gtest.h>

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

TEST(Table, WithoutRows) {
  EXPECT_EQ(Table({{"a"}, {"bc", Align::right}}).to_string(), "a  bc\n-  --\n");
}

TEST(Table, RefusesRowsOfAnotherLength) {
  Table table({{"a"}, {"b"}});
  EXPECT_EQ(test::error_of([&] { table.add({"1"}); }), "a row of 1 cells in a table of 2 columns");
}

}  // namespace
}  // namespace ballast
