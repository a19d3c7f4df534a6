#include "text/tokenizer/utf8.h"

#include "ballast/engine/tokenizer.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer/byte_alphabet.h"

namespace ballast {
namespace {

TEST(Utf8, EveryScalarValueComesBack) {
  std::string text;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    text.clear();
    append_utf8(text, code);
    const Utf8Char c = next_utf8(text, 0);
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
    ASSERT_EQ(c.state, Utf8Char::State::valid);
  }
  EXPECT_EQ(to_valid_utf8("né€😀"), "né€😀");
}

TEST(Utf8, DamagedPartsAreReplacedOnce) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\x80"
       "b",
       "a\uFFFDb"},                                      // a continuation byte alone
      {"\xc0\xaf", "\uFFFD\uFFFD"},                      // overlong
      {"\xe0\x80\x80", "\uFFFD\uFFFD\uFFFD"},            // overlong
      {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},            // a surrogate
      {"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // past U+10FFFF
      {"\xf0\x9f\x98x", "\uFFFDx"},                      // cut short: one maximal part
      {"\xe2\x82", "\uFFFD"},                            // ends early
      {"\xff\xfe", "\uFFFD\uFFFD"}};
  for (const auto& [damaged, expected] : cases) EXPECT_EQ(to_valid_utf8(damaged), expected);
}

TEST(Utf8, SaysWhetherTheTextEndsWithinACharacter) {
  EXPECT_EQ(next_utf8("\xf0\x9f\x98", 0).state, Utf8Char::State::unfinished);
  EXPECT_EQ(next_utf8("\xf0\x8f", 0).state, Utf8Char::State::damaged);
  EXPECT_EQ(next_utf8("\xed\xa0", 0).state, Utf8Char::State::damaged);
}

TEST(ByteAlphabet, SpellsEveryByte) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(bytes)), bytes);
  EXPECT_EQ(to_byte_alphabet(" \n~\x7f\xa0\xad\xff"), "ĠĊ~ġłŃÿ");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("日"), std::nullopt);
}

}  // namespace
}  // namespace ballast
