#include "ballast/memory_size.h"

#include "ballast/error.h"
#include "support.h"

namespace ballast::test {
namespace {

std::string refused(const char* text) {
  return error_of([&] { MemorySize::parse(text); });
}

TEST(MemorySize, SharesOfTheExactCache) {
  for (const char* text : {"1/8", "0.125", "12.5%", "2/16"}) {
    const MemorySize size = MemorySize::parse(text);
    EXPECT_EQ(size.unit, MemorySize::Unit::share) << text;
    EXPECT_EQ(size.bytes(77, 80001), 10000u) << text;
    EXPECT_TRUE(size.needs_length());
  }
  EXPECT_EQ(MemorySize::parse("100%").bytes(1, 640), 640u);
  EXPECT_EQ(MemorySize::parse("1.0").bytes(1, 640), 640u);
}

TEST(MemorySize, BytesAndBytesAToken) {
  EXPECT_EQ(MemorySize::parse("256M").bytes(5, 7), std::size_t{256} << 20);
  EXPECT_EQ(MemorySize::parse("1.5GiB").bytes(5, 7), std::size_t{3} << 29);
  EXPECT_EQ(MemorySize::parse("4096B").bytes(5, 7), 4096u);
  EXPECT_FALSE(MemorySize::parse("4k").needs_length());
  EXPECT_EQ(MemorySize::parse("40K/token").bytes(3, 7), 3u * 40 * 1024);
  EXPECT_EQ(MemorySize::parse("0.5KB/token").bytes(3, 7), 1536u);
}

TEST(MemorySize, RefusesWhatIsNoAmount) {
  EXPECT_THAT(refused("1"), testing::HasSubstr("'1' could be a share or bytes"));
  EXPECT_THAT(refused("4096"), testing::HasSubstr("could be a share or bytes"));
  EXPECT_THAT(refused("1.5"), testing::HasSubstr("larger than it"));
  EXPECT_THAT(refused("150%"), testing::HasSubstr("larger than it"));
  EXPECT_THAT(refused("9/8"), testing::HasSubstr("larger than it"));
  for (const char* text : {"", "x", "1/", "/8", "1/0", "1/8x", "-1/8", "12%%", "40K/tok", "nan",
                           "inf", "K", "1e9999", "1//8", " 1/8"}) {
    EXPECT_THAT(refused(text), testing::HasSubstr("not an amount of memory")) << text;
  }
  for (const char* text : {"0.0", "0%", "0M", "0/8"}) {
    EXPECT_THAT(refused(text), testing::HasSubstr("an amount of memory of")) << text;
  }
}

}  // namespace
}  // namespace ballast::test
