#include "base/parse_double.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ballast {
namespace {

TEST(ParseDouble, StrtodReadsAsFromCharsDoes) {
  for (const std::string text :
       {"0",      "1.5", "-2.25e3x", "1e5", "1e",   ".5",    "5.",    "1.5MB",
        "3E2",    "+1",  " 1",       "",    "x",    "-",     "1e400", "-1e400",
        "1e-400", "inf", "-inf",     "nan", "0x10", "12 34", "1,5",   "0.1"}) {
    for (const auto format : {std::chars_format::general, std::chars_format::fixed}) {
      const char* begin = text.data();
      const char* end = begin + text.size();
      double expected = -7, value = -7;
      const auto right = std::from_chars(begin, end, expected, format);
      const auto read = parse_double_by_strtod(begin, end, value, format);
      if (right.ec == std::errc::result_out_of_range) continue;  // by system
      EXPECT_EQ(read.ptr - begin, right.ptr - begin) << text;
      EXPECT_EQ(read.ec, right.ec) << text;
      EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << text;
    }
  }
}

}  // namespace
}  // namespace ballast
