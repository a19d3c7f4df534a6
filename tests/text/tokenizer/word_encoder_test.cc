#include "text/tokenizer/word_encoder.h"

#include <gtest/gtest.h>

#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using Ids = std::vector<Token>;

const std::string kLetters[] = {"\u2581", "a", "b", "é", "文", "\xff", "\x80"};

std::string random_word(std::mt19937& random, std::size_t length, std::size_t letters) {
  std::string out;
  for (std::size_t i = 0; i < length; ++i) out += kLetters[random() % letters];
  return out;
}

/// Some pieces of two to four characters; without byte pieces half of the time, so that what has no
/// piece becomes the unknown token.
Vocabulary random_scores(std::mt19937& random) {
  std::vector<std::pair<std::string, float>> pieces;
  for (const char* one : {"\u2581", "a", "b"}) pieces.emplace_back(one, -9.0f);
  for (int i = 0; i < 8; ++i) {
    const std::string piece = random_word(random, 2 + random() % 3, 5);
    const auto same = [&](const auto& p) { return p.first == piece; };
    if (std::ranges::none_of(pieces, same)) pieces.emplace_back(piece, -float(random() % 8));
  }
  return test::score_vocabulary(pieces, random() % 2 == 0);
}

Vocabulary random_merges(std::mt19937& random) {
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<std::string> made = {"a", "b", "\xc3", "\xa9", "\xff"};
  for (int i = 0; i < 6; ++i) {
    const std::string left = made[random() % made.size()], right = made[random() % made.size()];
    if (std::ranges::find(made, left + right) != made.end()) continue;
    merges.emplace_back(left, right);
    made.push_back(left + right);
  }
  return test::byte_vocabulary(merges);
}

// The reference is the word encoded whole.
TEST(WordEncoder, PartsGiveTheIdsOfTheWhole) {
  std::mt19937 random(11);
  std::size_t parts = 0;
  for (int round = 0; round < 400; ++round) {
    const Vocabulary v = round % 2 == 0 ? random_scores(random) : random_merges(random);
    std::vector<std::string> texts;
    for (const std::string& piece : v.pieces) {
      texts.push_back(round % 2 == 0 ? piece : from_byte_alphabet(piece).value_or(""));
    }
    const WordEncoder encoder(v, texts);
    for (const std::size_t part : {0, 1, 2, 7}) {
      const std::string word = random_word(random, random() % 40, std::size(kLetters));
      Ids whole, cut;
      encoder.encode(word, whole);
      encoder.encode(word, cut, part);
      EXPECT_EQ(cut, whole) << testing::PrintToString(word) << " in parts of " << part;
      parts += encoder.next_cut(word, part) < word.size();
    }
  }
  EXPECT_GT(parts, 800u);  // of 1,600 words are cut at least once
}

}  // namespace
}  // namespace ballast
