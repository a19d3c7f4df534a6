#include "ballast/engine/tokenizer.h"

#include <fmt/format.h>

#include <limits>

#include "ballast/error.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using Ids = std::vector<Token>;
using testing::HasSubstr;

Vocabulary small_bytes() { return test::byte_vocabulary({{"h", "e"}, {" ", "he"}, {"l", "l"}}); }

Vocabulary small_scores(bool bytes = true) {
  return test::score_vocabulary({{"\u2581", -9},
                                 {"a", -8},
                                 {"b", -7},
                                 {"ab", -1},
                                 {"\u2581ab", -2},
                                 {"ba", -0.5f},
                                 {"\u2581a", -3}},
                                bytes);
}

std::string error_of(Vocabulary vocabulary) {
  try {
    Tokenizer tokenizer(std::move(vocabulary));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Tokenizer, MergesBytes) {
  const Tokenizer t(small_bytes());
  EXPECT_EQ(t.encode("he hell"), (Ids{256, 257, 258}));
  EXPECT_EQ(t.encode("hex\xff"), (Ids{256, 'x', 0xff}));
  EXPECT_EQ(t.encode(""), Ids{});
  EXPECT_EQ(t.decode(Ids{257, 258}), " hell");
}

TEST(Tokenizer, MergesByScore) {
  Vocabulary v = small_scores();
  v.space_prefix = Vocabulary::SpacePrefix::always;
  const Tokenizer t(v);
  const auto id = [&](const char* piece) { return t.find(piece); };
  // "_aba": "ba" (-0.5) goes first, then "_a" (-3).
  EXPECT_EQ(t.encode("aba"), (Ids{id("\u2581a"), id("ba")}));
  EXPECT_EQ(t.encode("ab ab"), (Ids{id("\u2581ab"), id("\u2581ab")}));
  EXPECT_EQ(t.encode("é"), (Ids{id("\u2581"), id("<0xC3>"), id("<0xA9>")}));
  EXPECT_EQ(t.decode(t.encode(" a\xc3 b")), " a\xc3 b");
  EXPECT_EQ(t.decode(Ids{id("\u2581ab")}, {.text_start = false}), " ab");
}

TEST(Tokenizer, ALimitedOneRefusesLongTexts) {
  Vocabulary marked = small_bytes();
  marked.pieces.push_back("<m>");
  marked.types.push_back(TokenType::control);
  const EncodeOptions marks{.parse_special = true};
  const Tokenizer bytes(marked), scores(small_scores());
  for (const Tokenizer& t : {bytes, scores}) {
    for (const char* text : {"he ab hex", "ab ab ab ab ab", "<m><m><m>", "a<m>", ""}) {
      const Ids ids = t.encode(text, marks);
      EXPECT_EQ(t.limited(ids.size()).encode(text, marks), ids);
      if (ids.empty()) continue;
      try {
        t.limited(ids.size() - 1).encode(text, marks);
        ADD_FAILURE() << text;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::over_limit);
        EXPECT_THAT(e.what(), HasSubstr(std::to_string(ids.size() - 1) + " tokens"));
      }
    }
  }
}

TEST(Tokenizer, WritesARunOfWhatItDoesNotKnowAsOneToken) {
  const Tokenizer t(small_scores(false));
  EXPECT_EQ(t.encode("aéèb"), (Ids{t.find("a"), 0, t.find("b")}));
  EXPECT_EQ(t.decode(Ids{t.find("a"), 0}), "a\uFFFD");
  Vocabulary none = small_scores(false);
  none.unk = kNoToken;
  EXPECT_THROW(Tokenizer(none).encode("é"), Error);
}

TEST(Tokenizer, PutsSpacesWhereTheVocabularyWantsThem) {
  Vocabulary v = small_scores();
  const auto text_of = [&](std::string_view text) {
    const Tokenizer t(v);
    std::string pieces;
    for (Token id : t.encode(text, {.parse_special = true})) pieces += t.vocabulary().pieces[id];
    return pieces;
  };
  EXPECT_EQ(text_of("a<s>a"), "a<s>a");
  v.space_prefix = Vocabulary::SpacePrefix::first;
  EXPECT_EQ(text_of("a<s>a"), "\u2581a<s>a");
  EXPECT_EQ(text_of("<s>a"), "<s>a");
  v.space_prefix = Vocabulary::SpacePrefix::always;
  EXPECT_EQ(text_of("a<s>a"), "\u2581a<s>\u2581a");
  EXPECT_EQ(text_of(" a"), "\u2581\u2581a");
  v.prefix_unless_space = true;
  EXPECT_EQ(text_of(" a"), "\u2581a");
}

TEST(Tokenizer, CuttingAtSpacesChangesNothing) {
  // With a piece that has a space inside, words may not be cut; both ways must agree otherwise.
  std::mt19937 random(2);
  std::vector<std::pair<std::string, float>> pieces;
  const std::string letters[] = {"\u2581", "a", "b"};
  for (const auto& x : letters) {
    for (const auto& y : letters) {
      if (y != "\u2581" || x == "\u2581") pieces.emplace_back(x + y, -1.0f * (random() % 50));
      for (const auto& z : letters) {
        if (y == "\u2581" ? x == "\u2581" : z != "\u2581") {
          pieces.emplace_back(x + y + z, -1.0f * (random() % 50));
        }
      }
    }
    pieces.emplace_back(x, -60.0f);
  }
  const Tokenizer cut(test::score_vocabulary(pieces, true));
  pieces.emplace_back("zzz\u2581zzz", -99.0f);  // never made, but forbids cutting
  const Tokenizer whole(test::score_vocabulary(pieces, true));
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::size_t i = random() % 60; i > 0; --i) text += " ab"[random() % 3];
    EXPECT_EQ(cut.encode(text), whole.encode(text)) << text;
  }
}

TEST(Tokenizer, FindsSpecialTokensWhenAsked) {
  Vocabulary v = small_bytes();
  const Tokenizer t(v);
  EXPECT_EQ(t.encode("he<s>he</s>", {.parse_special = true}), (Ids{256, v.bos, 256, v.eos}));
  EXPECT_EQ(t.encode("<s>"), (Ids{'<', 's', '>'}));
  EXPECT_EQ(t.decode(Ids{v.bos, 256, v.eos}), "he");
  EXPECT_EQ(t.decode(Ids{v.bos, 256, v.eos}, {.special = true}), "<s>he</s>");
  EXPECT_TRUE(t.is_special(v.bos));
  EXPECT_FALSE(t.is_special(256));
  EXPECT_FALSE(t.is_special(kNoToken));
  EXPECT_FALSE(t.is_special(static_cast<Token>(t.size())));
  EXPECT_TRUE(t.is_end(v.eos));
  EXPECT_FALSE(t.is_end(v.bos));
  EXPECT_FALSE(t.is_end(kNoToken));
}

TEST(Tokenizer, LongestSpecialTokenWins) {
  Vocabulary v = small_bytes();
  for (const char* piece : {"<<", "<<<x", "hex"}) {
    v.pieces.push_back(piece);
    v.types.push_back(TokenType::user_defined);
  }
  const Tokenizer t(v);
  const Token two = t.find("<<");
  EXPECT_EQ(t.encode("<<<x<<<"), (Ids{two + 1, two, '<'}));
  EXPECT_EQ(t.encode("hexhe"), (Ids{two + 2, 256}));  // user-defined: found without asking
  EXPECT_EQ(t.decode(t.encode("<<<x<<<")), "<<<x<<<");
}

TEST(Tokenizer, SomeSpecialTokensSwallowSpace) {
  Vocabulary v = small_bytes();
  v.strip_left = {v.eos};
  v.strip_right = {v.bos};
  EXPECT_EQ(Tokenizer(v).encode("<s> \nhe \n</s> he", {.parse_special = true}),
            (Ids{v.bos, 256, v.eos, 257}));
}

TEST(Tokenizer, TheSpaceThatTokensSwallowIsUnicodes) {
  Vocabulary v = small_bytes();
  v.strip_left = v.strip_right = {v.eos};
  const Tokenizer t(v);
  for (const char* space : {"\u00a0", "\u3000", "\u2003 \t", "\u0085", "\u00a0\u1680\u2028"}) {
    EXPECT_EQ(t.encode(fmt::format("x{}</s>{}x", space, space), {.parse_special = true}),
              (Ids{'x', v.eos, 'x'}))
        << space;
  }
  // A space's last byte may end another character, and U+200B is none.
  for (const char* other : {"\u0120", "\u200b", "\xa0", "\x80", "\xe3\x80"}) {
    const std::string text = fmt::format("x{}</s>{}x", other, other);
    EXPECT_EQ(t.decode(t.encode(text, {.parse_special = true}), {.special = true}), text);
  }
}

TEST(Tokenizer, FurtherTokensEndATextToo) {
  Vocabulary v = small_bytes();
  v.ends = {'x', 'y'};
  const Tokenizer t(v);
  EXPECT_TRUE(t.is_end('x') && t.is_end('y') && t.is_end(v.eos));
  EXPECT_FALSE(t.is_end('z'));
  v.ends = {static_cast<Token>(v.pieces.size())};
  EXPECT_THROW(Tokenizer{v}, Error);
}

TEST(Tokenizer, AddsWhatTheVocabularyAsksFor) {
  Vocabulary v = small_bytes();
  v.add_bos = true;
  v.add_eos = true;
  const Tokenizer t(v);
  EXPECT_EQ(t.encode("he"), (Ids{v.bos, 256, v.eos}));
  EXPECT_EQ(t.encode("he", {.add_special = false}), Ids{256});
}

TEST(Tokenizer, WholeWordsCanGoBeforeMerges) {
  Vocabulary v = small_bytes();
  v.pieces.push_back("hex");
  v.types.push_back(TokenType::normal);
  EXPECT_EQ(Tokenizer(v).encode("hex"), (Ids{256, 'x'}));
  v.ignore_merges = true;
  EXPECT_EQ(Tokenizer(v).encode("hex"), (Ids{Tokenizer(v).find("hex")}));
}

TEST(Tokenizer, NormalisesWhenAsked) {
  Vocabulary v = small_bytes();
  v.nfc = true;
  EXPECT_EQ(Tokenizer(v).encode("e\u0301"), (Ids{0xc3, 0xa9}));
}

TEST(Tokenizer, EndsOfTurnsAreKnownByName) {
  Vocabulary v = small_bytes();
  v.pieces.insert(v.pieces.end(), {"<|im_end|>", "<|eot_id|>"});
  v.types.insert(v.types.end(), {TokenType::control, TokenType::normal});
  const Tokenizer t(v);
  EXPECT_TRUE(t.is_end(t.find("<|im_end|>")));
  EXPECT_FALSE(t.is_end(t.find("<|eot_id|>")));  // an ordinary piece that looks like one
}

TEST(Tokenizer, RefusesPartsThatDoNotFit) {
  EXPECT_THAT(error_of({}), HasSubstr("empty"));
  Vocabulary v = small_bytes();
  v.types.pop_back();
  EXPECT_THAT(error_of(v), HasSubstr("token types"));
  v = small_bytes();
  v.eos = static_cast<Token>(v.pieces.size());
  EXPECT_THAT(error_of(v), HasSubstr("eos"));
  v = small_bytes();
  v.merges.add("q", "z");
  EXPECT_THAT(error_of(v), HasSubstr("'qz'"));
  v = small_bytes();
  v.pre = "unheard-of";
  EXPECT_THAT(error_of(v), HasSubstr("unheard-of"));
  v = small_bytes();
  v.add_bos = true;
  v.bos = kNoToken;
  EXPECT_THAT(error_of(v), HasSubstr("bos"));
  v = small_bytes();
  v.pieces.back() = std::string(5000, 'x');
  EXPECT_THAT(error_of(v), HasSubstr("5000 bytes"));
  v = small_scores();
  v.pieces.back() = std::string(2000, 'x');
  EXPECT_THAT(error_of(v), HasSubstr("2000 bytes"));
  v = small_scores();
  v.scores.clear();
  EXPECT_THAT(error_of(v), HasSubstr("scores"));
  v = small_scores();
  v.scores[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of(v), HasSubstr("piece 5"));
  v = small_scores();
  v.pieces[4] = "<0xZZ>";
  EXPECT_THAT(error_of(v), HasSubstr("<0xZZ>"));
  EXPECT_THROW(Tokenizer(small_bytes()).decode(Ids{-1}), Error);
  EXPECT_THROW(Tokenizer(small_bytes()).decode(Ids{9999}), Error);
}

TEST(TokenStream, NeverSplitsACharacter) {
  const Tokenizer t(small_bytes());
  TokenStream stream(t);
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.push(0x9f), "");
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_EQ(stream.push(0x80), "😀");
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.push('x'), "\uFFFDx");  // the character was never finished
  EXPECT_EQ(stream.push(0xff), "\uFFFD");
  EXPECT_EQ(stream.push(0xc3), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
}

TEST(TokenStream, DropsTheFirstSpaceOfAText) {
  Vocabulary v = small_scores();
  v.space_prefix = Vocabulary::SpacePrefix::always;
  const Tokenizer t(v);
  TokenStream text(t);
  EXPECT_EQ(text.push(v.bos), "");
  EXPECT_EQ(text.push(t.find("\u2581ab")), "ab");
  EXPECT_EQ(text.push(t.find("\u2581ab")), " ab");
  TokenStream answer(t, {.text_start = false});
  EXPECT_EQ(answer.push(t.find("\u2581ab")), " ab");
}

TEST(Tokenizer, LongTextsOfOneCharacterAreNoTrouble) {
  const Tokenizer bytes(test::byte_vocabulary({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  EXPECT_EQ(bytes.encode(std::string(100'000, 'a')).size(), 12'500u);
  const Tokenizer scores(
      test::score_vocabulary({{"a", -3}, {"aa", -1}, {"aaaa", -2}, {"b\u2581", -4}}, true));
  EXPECT_EQ(scores.encode(std::string(100'000, 'a')).size(), 25'000u);
}

}  // namespace
}  // namespace ballast
