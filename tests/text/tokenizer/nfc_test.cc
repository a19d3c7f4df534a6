#include "text/tokenizer/nfc.h"

#include <unicode/normlzr.h>
#include <unicode/uchar.h>

#include <random>

#include "text/test_vocabulary.h"

namespace ballast {
namespace {

std::string icu_form(const std::string& text, UNormalizationMode mode) {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeString out;
  icu::Normalizer::normalize(icu::UnicodeString::fromUTF8(text), mode, 0, out, status);
  EXPECT_TRUE(U_SUCCESS(status));
  std::string utf8;
  return out.toUTF8String(utf8);
}

std::string repeat(std::string_view text, std::size_t count) {
  std::string out;
  for (; count > 0; --count) out += text;
  return out;
}

// Every character of a class other than 0, and those of class 0 that decompose into such.
std::vector<char32_t> all_marks() {
  std::vector<char32_t> marks;
  for (char32_t code = 0x300; code < 0x110000; ++code) {
    if (u_getCombiningClass(static_cast<UChar32>(code)) != 0) marks.push_back(code);
  }
  marks.insert(marks.end(), {0xf73, 0xf75, 0xf81});
  return marks;
}

TEST(Nfc, OrderedMarksHaveTheSameForms) {
  const std::vector<char32_t> all = all_marks();
  const std::vector<char32_t> few = {0x301, 0x316, 0x308, 0x344, 0x345,  0x334, 0x5b0,
                                     0xf71, 0xf73, 0xf75, 0xf81, 0x3099, 0x302, 0x1d165};
  const std::vector<std::string> bases = {"a",    "\u00e9",     "\u0f40", "\uac00", "\u1fb3",
                                          "\xff", "\U0001d157", "",       "\u4e00", "\u0b47\u0b3e"};
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    const auto& marks = round % 2 == 0 ? all : few;
    std::string text;
    for (std::size_t runs = 1 + random() % 3; runs > 0; --runs) {
      text += bases[random() % bases.size()];
      for (std::size_t i = random() % 9; i > 0; --i)
        append_utf8(text, marks[random() % marks.size()]);
    }
    text = to_valid_utf8(text);
    const std::string ordered = order_marks(text, 0);
    ASSERT_EQ(icu_form(ordered, UNORM_NFC), icu_form(text, UNORM_NFC)) << text;
    ASSERT_EQ(icu_form(ordered, UNORM_NFD), icu_form(text, UNORM_NFD)) << text;
    ASSERT_EQ(order_marks(ordered, 0), ordered) << text;
    ASSERT_EQ(to_nfc(text), icu_form(text, UNORM_NFC)) << text;
  }
}

TEST(Nfc, RunsOfMarksBecomeOrdered) {
  EXPECT_EQ(order_marks("a\u0301\u0316b\u0345\u0334", 0), "a\u0316\u0301b\u0334\u0345");
  EXPECT_EQ(order_marks("\u0f73\u0f71", 0), "\u0f71\u0f71\u0f72");  // class 0, of 129 and 130
  EXPECT_EQ(order_marks("a\u0301\u0316b", 2), "a\u0301\u0316b");    // no longer than two
  EXPECT_EQ(order_marks("a\u0301\u0316b", 1), "a\u0316\u0301b");
  EXPECT_EQ(order_marks("\u0301\xff\u0316\xcc", 0), "\u0301\xff\u0316\xcc");
  EXPECT_EQ(order_marks("", 0), "");
}

// Moving marks one by one would take minutes.
TEST(Nfc, LongRunsOfMarks) {
  constexpr std::size_t n = 200'000;
  EXPECT_EQ(to_nfc("a" + repeat("\u0301", n) + repeat("\u0316", n) + "b"),
            "\u00e1" + repeat("\u0316", n) + repeat("\u0301", n - 1) + "b");
  EXPECT_EQ(to_nfc(repeat("\u0f73", n)), repeat("\u0f71", n) + repeat("\u0f72", n));
  EXPECT_EQ(to_nfc(repeat("\u0345\u0334\u0301", n)),
            repeat("\u0334", n) + repeat("\u0301", n) + repeat("\u0345", n));
  Vocabulary v = test::byte_vocabulary({});
  v.nfc = true;
  const std::vector<Token> ids =
      Tokenizer(v).encode("a" + repeat("\u0301", n) + repeat("\u0316", n));
  ASSERT_EQ(ids.size(), 4 * n);
  EXPECT_EQ(std::vector<Token>(ids.begin(), ids.begin() + 4),
            (std::vector<Token>{0xc3, 0xa1, 0xcc, 0x96}));
}

}  // namespace
}  // namespace ballast
