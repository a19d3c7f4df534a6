#include "text/tokenizer/special_tokens.h"

#include <random>

#include "ballast/error.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using Found = std::vector<std::pair<std::string, Token>>;

Found split(const Vocabulary& v, std::string_view text, bool control) {
  Found found;
  SpecialTokens(v).split(
      text, control, [&](SpecialTokens::Part part) { found.emplace_back(part.text, part.token); });
  return found;
}

bool listed(const std::vector<Token>& list, std::size_t i) {
  return std::find(list.begin(), list.end(), static_cast<Token>(i)) != list.end();
}

// Each piece at each byte.
Found naive(const Vocabulary& v, std::string_view text, bool control) {
  Found found;
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  std::size_t begin = 0, i = 0;
  while (i < text.size()) {
    std::size_t best = v.pieces.size(), length = 0;
    for (std::size_t k = 0; k < v.pieces.size(); ++k) {
      const std::string& piece = v.pieces[k];
      const bool wanted =
          v.types[k] == TokenType::user_defined ||
          (control && (v.types[k] == TokenType::control || v.types[k] == TokenType::unknown));
      // What a later piece of the same spelling hides is not found, whatever that one is.
      bool hidden = false;
      for (std::size_t other = k + 1; other < v.pieces.size(); ++other) {
        hidden |= v.pieces[other] == piece && v.types[other] != TokenType::normal;
      }
      if (wanted && !hidden && piece.size() > length && text.substr(i).starts_with(piece)) {
        best = k;
        length = piece.size();
      }
    }
    if (length == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (listed(v.strip_left, best) && end > begin && space(text[end - 1])) --end;
    if (end > begin) found.emplace_back(text.substr(begin, end - begin), kNoToken);
    found.emplace_back(text.substr(i, length), static_cast<Token>(best));
    i += length;
    while (listed(v.strip_right, best) && i < text.size() && space(text[i])) ++i;
    begin = i;
  }
  if (begin < text.size()) found.emplace_back(text.substr(begin), kNoToken);
  return found;
}

TEST(SpecialTokens, AreFoundAsByTryingEachAtEachByte) {
  std::mt19937 random(11);
  const auto letters = [&](std::size_t most, int kinds) {
    std::string text(random() % (most + 1), ' ');
    for (char& c : text) c = " ab\xff"[random() % kinds];
    return text;
  };
  for (int round = 0; round < 600; ++round) {
    Vocabulary v;
    v.source = "test";
    for (std::size_t i = random() % 9; i > 0; --i) {
      v.pieces.push_back(letters(round % 3 == 0 ? 3 : 7, 4));
      static constexpr TokenType kTypes[] = {TokenType::control, TokenType::user_defined,
                                             TokenType::unknown, TokenType::normal};
      v.types.push_back(kTypes[random() % 4]);
      const Token id = static_cast<Token>(v.pieces.size()) - 1;
      if (random() % 4 == 0) v.strip_left.push_back(id);
      if (random() % 4 == 0) v.strip_right.push_back(id);
    }
    for (int texts = 0; texts < 6; ++texts) {
      const std::string text = letters(40, 3 + static_cast<int>(random() % 2));
      for (const bool control : {false, true}) {
        ASSERT_EQ(split(v, text, control), naive(v, text, control)) << text;
      }
    }
  }
}

Vocabulary marks(std::vector<std::string> pieces) {
  Vocabulary v;
  v.source = "test";
  v.types.assign(pieces.size(), TokenType::control);
  v.pieces = std::move(pieces);
  return v;
}

// A long text is searched in parts.
TEST(SpecialTokens, AreFoundWhereverTheyStandInALongText) {
  const Vocabulary v = marks({"<mark>", "<mark", std::string(700, 'x')});
  for (std::size_t before = 16'300; before < 16'400; ++before) {
    const std::string text(before, ' ');
    ASSERT_EQ(split(v, text + "<mark>" + text + "<mark", true),
              (Found{{text, kNoToken}, {"<mark>", 0}, {text, kNoToken}, {"<mark", 1}}));
  }
  const std::string text = std::string(16'000, ' ');
  EXPECT_EQ(split(v, text + v.pieces[2] + text, true),
            (Found{{text, kNoToken}, {v.pieces[2], 2}, {text, kNoToken}}));
}

// As many steps as bytes: trying 1,023 letters at each byte would take a minute.
TEST(SpecialTokens, ALongTextOfBeginningsAndEndings) {
  const std::string run(1023, 'a'), text(10'000'000, 'a');
  for (const std::string& mark : {run + "b", "b" + run, run.substr(500) + "b" + run.substr(500)}) {
    EXPECT_EQ(split(marks({mark}), text, true), (Found{{text, kNoToken}}));
  }
  EXPECT_EQ(split(marks({"b", run + "b"}), text + "b", true),
            (Found{{text.substr(0, text.size() - 1023), kNoToken}, {run + "b", 1}}));
}

// A list that is looked through for each token would take minutes.
TEST(SpecialTokens, AMillionThatSwallowSpace) {
  Vocabulary v;
  v.source = "test";
  for (std::size_t i = 0; i < kMostPieces; ++i) {
    v.pieces.push_back(
        {static_cast<char>(i), static_cast<char>(i >> 8), static_cast<char>(i >> 16)});
    v.strip_left.push_back(static_cast<Token>(i));
    v.strip_right.push_back(static_cast<Token>(i));
  }
  v.types.assign(kMostPieces, TokenType::control);
  const std::string text = "\n xx " + v.pieces[0x123456 % kMostPieces] + " yy";
  EXPECT_EQ(split(v, text, true),
            (Found{{"\n xx", kNoToken},
                   {v.pieces[0x123456 % kMostPieces], static_cast<Token>(0x123456 % kMostPieces)},
                   {"yy", kNoToken}}));
}

TEST(SpecialTokens, OfTooManyEndingsAreRefused) {
  std::mt19937 random(3);
  std::vector<std::string> pieces(SpecialTokens::kMostNodes / 1000 + 10);
  for (auto& piece : pieces) piece = test::random_bytes(random, 1000);
  EXPECT_THROW(SpecialTokens{marks(pieces)}, Error);
  pieces.resize(pieces.size() - 30);
  EXPECT_NO_THROW(SpecialTokens{marks(pieces)});
  // The same ending is held once.
  pieces.assign(10'000, std::string(1000, 'a'));
  EXPECT_NO_THROW(SpecialTokens{marks(pieces)});
}

}  // namespace
}  // namespace ballast
