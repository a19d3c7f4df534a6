#include "text/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ballast/error.h"
#include "base/os/memory.h"
#include "heap_bytes.h"
#include "paths.h"
#include "temp_dir.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ballast {
namespace {

using Ids = std::vector<Token>;

// A vocabulary as the SentencePiece library reads it.
SentencePieceParts parts_of(const Vocabulary& v) {
  SentencePieceParts parts;
  parts.pieces = v.pieces;
  parts.scores = v.scores;
  parts.types = v.types;
  parts.unigram = false;
  parts.byte_fallback = true;
  parts.add_space_prefix = v.space_prefix != Vocabulary::SpacePrefix::never;
  return parts;
}

Vocabulary library_vocabulary(const SentencePieceParts& parts) {
  std::string serialized = serialize(parts);
  Vocabulary v = SentencePieceModel(serialized, "test").vocabulary();
  v.sentencepiece_model = std::move(serialized);
  return v;
}

TEST(SentencePiece, TheLibraryAgreesOnALlamaVocabulary) {
  const std::string path = BALLAST_SHARED_DATA "/tokenizers/ggml-vocab-llama-spm.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const Vocabulary vocabulary = read_vocabulary(path);
  const Tokenizer ours(vocabulary);
  const Tokenizer theirs(library_vocabulary(parts_of(vocabulary)));
  std::mt19937 random(4);
  const EncodeOptions plain{.add_special = false};
  for (int round = 0; round < 500; ++round) {
    std::string text = test::random_text(random, random() % 80);
    for (std::size_t i = random() % 8; i > 0; --i) {
      static constexpr const char* kWords[] = {" the",      "ing ", "  ", "\n",
                                               "Tokenizer", "été",  "123"};
      text.insert(text.size() / (1 + random() % 3), kWords[random() % std::size(kWords)]);
    }
    text = to_valid_utf8(text);
    // NUL ends the library's normalisation of a character early in some versions.
    std::erase(text, '\0');
    EXPECT_EQ(ours.encode(text, plain), theirs.encode(text, plain)) << text;
  }
}

TEST(SentencePiece, ReadsAModelFile) {
  const TempDir parent;
  const auto folder = parent / "tokenizer";
  Vocabulary v = test::score_vocabulary({{"\u2581", -9}, {"a", -8}, {"\u2581a", -1}}, true);
  v.space_prefix = Vocabulary::SpacePrefix::always;
  test::write_text(folder / "tokenizer.model", serialize(parts_of(v)));
  test::write_text(folder / "tokenizer_config.json",
                   R"({"add_bos_token": true, "chat_template": "T",
                       "added_tokens_decoder": {"262": {"content": "<|x|>", "special": true}}})");
  for (const auto& path : {folder, folder / "tokenizer.model"}) {
    const Tokenizer t(read_vocabulary(path));
    EXPECT_EQ(t.encode("a é"), (Ids{1, 261, 259, 3 + 0xc3, 3 + 0xa9}));
    EXPECT_EQ(t.decode(t.encode("a é")), "a é");
    EXPECT_EQ(t.encode("a<|x|>", {.add_special = false, .parse_special = true}), (Ids{261, 262}));
    EXPECT_EQ(t.vocabulary().chat_template, "T");
    EXPECT_EQ(t.vocabulary().unk, 0);
    EXPECT_EQ(t.vocabulary().eos, 2);
  }
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  EXPECT_THROW(SentencePieceModel("not a model", "file"), Error);
  EXPECT_THROW(SentencePieceModel("", "file"), Error);
  const std::string whole = serialize(parts_of(test::score_vocabulary({{"a", -1}}, true)));
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    try {
      SentencePieceModel(whole.substr(0, size), "file");
    } catch (const Error&) {
    }
  }
}

// The best segmentation by its definition, over all of them.
double best_score(std::string_view text,
                  const std::vector<std::pair<std::string, double>>& pieces) {
  std::vector<double> best(text.size() + 1, -INFINITY);
  best[0] = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const auto& [piece, score] : pieces) {
      if (text.substr(i).starts_with(piece)) {
        best[i + piece.size()] = std::max(best[i + piece.size()], best[i] + score);
      }
    }
  }
  return best.back();
}

TEST(SentencePiece, UnigramModelsOfTokenizerJsonFindTheBestSegmentation) {
  std::mt19937 random(6);
  std::vector<std::pair<std::string, double>> pieces = {
      {"<unk>", 0}, {"\u2581", -4}, {"a", -5}, {"b", -5}};
  for (const char* p : {"ab", "ba", "aab", "bb", "\u2581a", "\u2581ab", "abab"}) {
    pieces.emplace_back(p, -1.0 - static_cast<double>(random() % 80) / 8);
  }
  const nlohmann::json json = {
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"split", false}}},
      {"added_tokens",
       {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
        {{"id", pieces.size()}, {"content", "<e>"}, {"special", true}}}}};
  const Tokenizer t(parse_tokenizer_json(json.dump(), "json"));
  pieces.erase(pieces.begin());
  for (int round = 0; round < 200; ++round) {
    std::string text = "a";
    for (std::size_t i = random() % 20; i > 0; --i) text += " ab"[random() % 3];
    double score = 0;
    std::string marked = "\u2581";
    for (char c : text) marked += c == ' ' ? "\u2581" : std::string(1, c);
    const Ids ids = t.encode(text);
    for (Token id : ids) score += t.vocabulary().scores[id];
    EXPECT_NEAR(score, best_score(marked, pieces), 1e-4) << text;
    EXPECT_EQ(t.decode(ids), text);
  }
  EXPECT_EQ(t.encode("<e>", {.parse_special = true}), Ids{static_cast<Token>(pieces.size() + 1)});
}

// Scores are eighths: sums are exact in float32, so that the library's choice among ways of one
// score does not depend on what was before.
SentencePieceParts random_parts(std::mt19937& random, bool unigram, bool byte_fallback) {
  SentencePieceParts parts;
  parts.unigram = unigram;
  parts.byte_fallback = byte_fallback;
  parts.add_space_prefix = random() % 3 != 0;
  parts.remove_extra_spaces = random() % 3 == 0;
  const auto add = [&](const std::string& piece, TokenType type) {
    if (std::ranges::find(parts.pieces, piece) != parts.pieces.end()) return;
    parts.pieces.push_back(piece);
    parts.scores.push_back(-static_cast<float>(random() % 100) / 8);
    parts.types.push_back(type);
  };
  add("<unk>", TokenType::unknown);
  if (parts.byte_fallback) {
    for (int b = 0; b < 256; ++b) {
      char piece[8];
      std::snprintf(piece, sizeof(piece), "<0x%02X>", b);
      add(piece, TokenType::byte);
    }
  }
  if (random() % 8 != 0) add("\u2581", TokenType::normal);
  const bool inner = random() % 4 == 0;
  for (int i = 0; i < 14; ++i) {
    std::string piece;
    for (std::size_t spaces = random() % 3; spaces > 0; --spaces) piece += "\u2581";
    for (std::size_t n = random() % 4 + (piece.empty() ? 1 : 0); n > 0; --n) {
      static constexpr const char* kCharacters[] = {"a", "b", "1", "\n", "é", "中", "文", "\u2581"};
      piece += kCharacters[random() % (inner ? 8 : 7)];
    }
    constexpr TokenType kTypes[] = {TokenType::user_defined, TokenType::unused, TokenType::control};
    add(piece, random() % 8 == 0 ? kTypes[random() % 3] : TokenType::normal);
  }
  return parts;
}

TEST(SentencePiece, ATextInPartsHasTheIdsOfTheWhole) {
  std::mt19937 random(11);
  int words = 0, characters_alone = 0;
  for (int round = 0; round < 400; ++round) {
    const auto parts_of_model = random_parts(random, random() % 2 == 0, random() % 4 == 0);
    const SentencePieceModel model(serialize(parts_of_model), "test");
    const bool cuts_words = model.next_cut("a a", 0) == 1;
    (cuts_words ? words : characters_alone) += 1;
    for (int t = 0; t < 12; ++t) {
      std::string text;
      for (std::size_t n = random() % 60; n > 0; --n) {
        static constexpr const char* kTexts[] = {"a", "b", "1",  " ",  " ",  "  ",     "\n",  "\t",
                                                 "é", "x", "中", "文", "中", "\u2581", "\xc3"};
        text += kTexts[random() % std::size(kTexts)];
      }
      Ids once, parts;
      try {
        model.encode(text, once, text.size() + 1);
      } catch (const Error&) {
        continue;  // the library fails where an unused piece is the only way
      }
      model.encode(text, parts, 1 + random() % 9);
      ASSERT_EQ(parts, once) << "round " << round << ": " << text;
    }
  }
  EXPECT_GT(words, 100);
  EXPECT_GT(characters_alone, 50);
}

// What stands beside a cut: "文中" is in no piece, the others are; "x" is none of the pieces.
TEST(SentencePiece, TextsAreCutWhereNoPieceCrosses) {
  SentencePieceParts parts;
  parts.pieces = {"<unk>", "\u2581", "中", "文", "中中文文", "a", "é", "\u2581é", "<c>"};
  parts.scores.assign(parts.pieces.size(), -1);
  parts.types.assign(parts.pieces.size(), TokenType::normal);
  parts.types[0] = TokenType::unknown;
  parts.types[8] = TokenType::control;
  const auto cut = [&](std::string_view text) {
    return SentencePieceModel(serialize(parts), "test").next_cut(text, 1);
  };
  EXPECT_EQ(cut("中中文文中"), 12u);
  EXPECT_EQ(cut("中中文文"), 12u);  // the end
  EXPECT_EQ(cut("文x中"), 4u);      // what begins is a piece, what ends need not be
  EXPECT_EQ(cut("文x"), 4u);
  EXPECT_EQ(cut("xa"), 1u);
  EXPECT_EQ(cut("éé"), 2u);
  EXPECT_EQ(cut("xé é"), 1u);
  EXPECT_EQ(cut("中文 文"), 6u);     // a space between two words
  EXPECT_EQ(cut("\xe4\xb8中"), 5u);  // a character that is damaged
  EXPECT_EQ(cut("a\u2581a"), 5u);    // as pieces write a space
  parts.types[3] = TokenType::unused;
  EXPECT_EQ(cut("文文"), 6u);  // what begins must be a piece that texts can have
  parts.types[3] = TokenType::control;
  EXPECT_EQ(cut("文文"), 6u);
  parts.types[3] = TokenType::normal;
  parts.pieces[4] = "a\u2581";  // then words are joined
  EXPECT_EQ(cut("文 文"), 7u);
  EXPECT_EQ(cut("文文"), 3u);
  parts.pieces[4] = "a\xff";  // nobody knows what that joins
  EXPECT_EQ(cut("文文"), 6u);
}

TEST(SentencePiece, WhatEndsAfterAPartEndsTheRest) {
  const SentencePieceModel model(
      serialize(parts_of(test::score_vocabulary({{"\u2581", -9}, {"文", -8}}, true))), "test");
  Ids ids;
  std::size_t parts = 0;
  const auto end = [&] {
    if (++parts == 2) throw Error("enough");
  };
  EXPECT_THROW(model.encode("文文文文文文文文", ids, 6, end), Error);
  EXPECT_EQ(ids, (Ids(4, ids.back())));
}

// Whole, the library takes 140 MB for this text. Run alone, as ctest does, the test sees its
// own peak.
TEST(SentencePiece, ALongTextWithoutSpacesTakesLittleMemory) {
  if (!test::kHeapCanBeAsked) GTEST_SKIP() << "a sanitizer keeps what is freed";
  const SentencePieceModel model(
      serialize(parts_of(test::score_vocabulary({{"\u2581", -9}, {"文", -8}}, true))), "test");
  std::string text;
  while (text.size() < (std::size_t{1} << 20)) text += "中文";
  Ids ids;
  const std::size_t before = peak_memory();
  model.encode(text, ids);
  EXPECT_GT(ids.size(), text.size() / 3);
  EXPECT_LT(peak_memory() - before, std::size_t{64} << 20);
}

TEST(SentencePiece, UnknownCharactersAreCutWhereTheyBecomeBytes) {
  SentencePieceParts parts = parts_of(test::score_vocabulary({{"\u2581", -9}, {"a", -8}}, true));
  EXPECT_EQ(SentencePieceModel(serialize(parts), "test").next_cut("文文", 1), 3u);
  parts = parts_of(test::score_vocabulary({{"\u2581", -9}, {"a", -8}}, false));
  parts.byte_fallback = false;
  EXPECT_EQ(SentencePieceModel(serialize(parts), "test").next_cut("文文", 1), 6u);
}

// The kinds of model whose pieces are words or characters join what lies between two spaces.
TEST(SentencePiece, OnlyModelsOfPiecesAreCut) {
  SentencePieceParts parts;
  parts.pieces = {"<unk>", "\u2581", "a", "文"};
  parts.scores.assign(4, -1);
  parts.types.assign(4, TokenType::normal);
  parts.types[0] = TokenType::unknown;
  std::string serialized = serialize(parts);
  const std::string kind = {0x18, 1};  // TrainerSpec: model_type = 3
  const std::size_t at = serialized.rfind(kind, serialized.rfind("ballast"));
  ASSERT_NE(at, std::string::npos);
  for (const char type : {1, 2, 3, 4}) {
    serialized[at + 1] = type;
    const SentencePieceModel model(serialized, "test");
    EXPECT_EQ(model.next_cut("a a", 1), type <= 2 ? 1u : 3u);
    EXPECT_EQ(model.next_cut("文文", 1), type <= 2 ? 3u : 6u);
  }
}

// With scores that are not exact, the parts' segmentation is as good as that of the whole.
TEST(SentencePiece, TheScoreOfPartsIsThatOfTheWholeAtLeast) {
  std::mt19937 random(12);
  for (int round = 0; round < 40; ++round) {
    SentencePieceParts parts = random_parts(random, true, false);
    for (float& score : parts.scores) score -= std::ldexp(static_cast<float>(random()), -34);
    const SentencePieceModel model(serialize(parts), "test");
    std::string text;
    for (int n = 0; n < 20'000; ++n) text += "ab1 a b"[random() % 7];
    Ids once, cut;
    model.encode(text, once, text.size() + 1);
    model.encode(text, cut, 64);
    const float least = *std::ranges::min_element(parts.scores) - 10;  // the library's, of unknowns
    const auto score = [&](const Ids& ids) {
      double sum = 0;
      for (Token id : ids) sum += static_cast<double>(id == 0 ? least : parts.scores[id]);
      return sum;
    };
    if (std::ranges::find(once, 0) == once.end()) {
      EXPECT_GE(score(cut), score(once) - 1e-3) << "round " << round;
    }
  }
}

// The library would encode them, and refuse a model of which one fails.
TEST(SentencePiece, TextsThatTestAModelAreLeftOut) {
  SentencePieceParts parts;
  parts.pieces = {"<unk>", "a", "\u2581"};
  parts.scores = {0, -1, -1};
  parts.types = {TokenType::unknown, TokenType::normal, TokenType::normal};
  const std::string model = serialize(parts);
  const std::string sample = "\x0a\x01z\x12\x01y";  // input and expected
  const std::string tests = "\x0a\x06" + sample, field = "\x22\x08" + tests;
  for (const std::string& tested : {model + field, field + model, field + model + field + field}) {
    std::vector<Token> ids;
    testing::internal::CaptureStderr();
    SentencePieceModel(tested, "test").encode("aa", ids);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(ids, (Ids{2, 1, 1}));
  }
}

}  // namespace
}  // namespace ballast
