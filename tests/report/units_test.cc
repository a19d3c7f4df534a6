#include "report/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace ballast {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1024 * 99.96), "100 KiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(format_bytes(3000.0 * (std::uint64_t{1} << 50)), "3000 PiB");
}

TEST(Units, Seconds) {
  EXPECT_EQ(format_seconds(0), "0 µs");
  EXPECT_EQ(format_seconds(85e-6), "85 µs");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(0.9999), "1.00 s");
  EXPECT_EQ(format_seconds(4.56), "4.56 s");
  EXPECT_EQ(format_seconds(59.99), "1 min 00 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(7500), "2 h 05 min");
}

TEST(Units, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(16384), "16,384");
  EXPECT_EQ(format_count(std::numeric_limits<std::uint64_t>::max()), "18,446,744,073,709,551,615");
}

TEST(Units, ThreeSignificantDigits) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.0123456), "0.0123");
  EXPECT_EQ(format_number(0.09999), "0.100");
  EXPECT_EQ(format_number(0.000123), "0.000123");
  EXPECT_EQ(format_number(1.2e-7), "1.2e-07");
  EXPECT_EQ(format_number(-3.14159), "-3.14");
  EXPECT_EQ(format_number(9.999), "10.0");
  EXPECT_EQ(format_number(153.7), "154");
  EXPECT_EQ(format_number(12345.6), "12346");
  EXPECT_EQ(format_number(1.5e6), "1.5e+06");
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Units, Percent) {
  EXPECT_EQ(format_percent(0.0625), "6.25%");
  EXPECT_EQ(format_percent(1), "100%");
}

TEST(Units, HugeNumbersAreShort) {
  EXPECT_EQ(format_fixed(12.345, 2), "12.35");
  EXPECT_EQ(format_fixed(999'999'999'999'999, 0), "999999999999999");
  EXPECT_EQ(format_fixed(1e15, 0), "1.00e+15");
  EXPECT_EQ(format_bytes(-1e308), "-1.00e+308 B");
  for (double x : {1e308, -1e308, 1e20}) {
    EXPECT_LT(format_bytes(x).size(), 25u);
    EXPECT_LT(format_seconds(x).size(), 25u);
    EXPECT_LT(format_percent(x).size(), 25u);
    EXPECT_LT(format_number(x).size(), 25u);
  }
  EXPECT_EQ(format_seconds(1e308), "1.00e+308 s");
}

}  // namespace
}  // namespace ballast
