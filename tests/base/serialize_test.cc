#include "ballast/serialize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support.h"

namespace ballast {
namespace {

using test::error_of;

TEST(Serialize, IsReadInTheOrderOfWriting) {
  MemoryWriter out;
  out.put<std::uint16_t>(7);
  out.put_all(std::span<const float>(std::array{1.5F, -2.0F}));
  out.put_text("a text");
  out.put_text("");
  out.put<std::uint64_t>(3);
  out.put<std::uint8_t>(9);
  EXPECT_EQ(out.bytes.size(), 2u + 8 + (8 + 6) + 8 + 8 + 1);

  ByteReader in(out.bytes, "a file");
  EXPECT_EQ(in.get<std::uint16_t>(), 7);
  std::array<float, 2> values = {};
  in.get_all(std::span<float>(values));
  EXPECT_EQ(values, (std::array{1.5F, -2.0F}));
  EXPECT_EQ(in.get_text(), "a text");
  EXPECT_EQ(in.get_text(), "");
  EXPECT_EQ(in.left(), 9u);
  EXPECT_EQ(in.get_count(3, "rows"), 3u);
  EXPECT_EQ(in.get<std::uint8_t>(), 9);
  EXPECT_EQ(in.left(), 0u);
  EXPECT_EQ(error_of([&] { in.get<std::uint8_t>(); }),
            "a file: ends at byte 41, 1 more were expected");
}

TEST(Serialize, CountsAndTextsStayWithinTheBytes) {
  MemoryWriter out;
  out.put<std::uint64_t>(4);
  out.put<std::uint8_t>(1);
  ByteReader text(out.bytes, "a file");
  EXPECT_EQ(error_of([&] { text.get_text(); }),
            "a file: a text of 4 bytes at byte 8 runs past the end");
  ByteReader count(out.bytes, "a file");
  EXPECT_THAT(error_of([&] { count.get_count(3, "rows"); }), testing::HasSubstr("rows"));
}

}  // namespace
}  // namespace ballast
