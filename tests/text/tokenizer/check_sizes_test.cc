#include "text/tokenizer/check_sizes.h"

#include <nlohmann/json.hpp>

#include "ballast/engine/gguf.h"
#include "ballast/error.h"
#include "temp_dir.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ballast {
namespace {

using nlohmann::json;
using testing::HasSubstr;

template <typename Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string letters(std::size_t count) { return std::string(count, 'a'); }

json byte_pairs(const std::string& piece) {
  return {{"model", {{"vocab", {{"a", 0}, {piece, 1}}}, {"merges", json::array()}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
}

json unigram(const std::string& piece) {
  json vocab = json::array();
  for (const auto& text : {std::string("<unk>"), std::string("a"), std::string("\u2581"), piece}) {
    vocab.push_back(json::array({text, -1}));
  }
  return {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}};
}

Tokenizer from(const json& root) { return Tokenizer(parse_tokenizer_json(root.dump(), "file")); }

constexpr const char* kPiece1 = "file: piece 1 has 4097 bytes; pieces of over 4096 are not read";

TEST(CheckPiece, OfATokenizerJson) {
  EXPECT_NO_THROW(from(byte_pairs(letters(kLongestPiece))));
  EXPECT_EQ(error_of([] { from(byte_pairs(letters(kLongestPiece + 1))); }), kPiece1);
  for (const bool special : {false, true}) {
    json root = byte_pairs("b");
    const auto add = [&](std::size_t size) {
      root["added_tokens"] = {{{"id", 2}, {"content", letters(size)}, {"special", special}}};
    };
    add(kLongestPiece);
    EXPECT_NO_THROW(from(root));
    add(kLongestPiece + 1);
    EXPECT_THAT(error_of([&] { from(root); }), HasSubstr("piece 2 has 4097 bytes"));
  }
}

TEST(CheckPiece, OfVocabJson) {
  const auto read = [](std::size_t size) {
    const json vocab = {{"a", 0}, {letters(size), 1}};
    return Tokenizer(parse_vocab_and_merges(vocab.dump(), "", "file"));
  };
  EXPECT_NO_THROW(read(kLongestPiece));
  EXPECT_EQ(error_of([&] { read(kLongestPiece + 1); }), kPiece1);
}

// The library's builder of tries recurses once a byte: 195 KB overflow the stack.

// The file spells a space in two bytes.
TEST(CheckPiece, OfSpacesIsCountedAsTheFileSpellsIt) {
  std::string piece;
  for (std::size_t i = 0; i < kLongestPiece / 2; ++i) piece += "\u0120";
  EXPECT_EQ(from(byte_pairs(piece)).decode(std::vector<Token>{1}),
            std::string(kLongestPiece / 2, ' '));
  EXPECT_THAT(error_of([&] { from(byte_pairs(piece + "\u0120")); }), HasSubstr("has 4098 bytes"));
}

TEST(CheckPiece, OfAUnigramModelBeforeTheLibraryReadsIt) {
  EXPECT_NO_THROW(from(unigram(letters(kLongestScoredPiece))));
  for (const std::size_t size : {kLongestScoredPiece + 1, std::size_t{1'000'000}}) {
    EXPECT_THAT(error_of([&] { from(unigram(letters(size))); }),
                HasSubstr("file: piece 3 has " + std::to_string(size) + " bytes"));
  }
}

TEST(CheckPiece, OfATokenizerModel) {
  const auto content = [](std::size_t size) {
    SentencePieceParts parts;
    parts.pieces = {"<unk>", "a", letters(size)};
    parts.scores = {0, -1, -2};
    parts.types = {TokenType::unknown, TokenType::normal, TokenType::normal};
    return serialize(parts);
  };
  EXPECT_NO_THROW(SentencePieceModel(content(kLongestScoredPiece), "file"));
  EXPECT_THAT(error_of([&] { SentencePieceModel(content(1'000'000), "file"); }),
              HasSubstr("file: piece 2 has 1000000 bytes"));
  // A group, which the library passes over, hides no piece behind it.
  std::string piece = "\x0b\x0c\x0a";
  for (std::size_t left = 1'000'000; left > 0; left >>= 7) {
    piece += static_cast<char>((left & 0x7f) | (left >= 0x80 ? 0x80 : 0));
  }
  piece += letters(1'000'000);
  std::string model = content(1) + '\x0a';
  for (std::size_t left = piece.size(); left > 0; left >>= 7) {
    model += static_cast<char>((left & 0x7f) | (left >= 0x80 ? 0x80 : 0));
  }
  EXPECT_THAT(error_of([&] { SentencePieceModel(model + piece, "file"); }),
              HasSubstr("file: not a SentencePiece model"));
}

TEST(CheckPiece, OfAGguf) {
  const TempDir folder;
  const auto read = [&](std::size_t size) {
    const std::filesystem::path path = folder / "vocabulary.gguf";
    GgufWriter writer(path);
    writer.add("tokenizer.ggml.model", "llama");
    const std::vector<std::string> pieces = {"<unk>", letters(size)};
    writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(pieces));
    const float scores[] = {0, 0};
    writer.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
    writer.commit();
    return Tokenizer(read_vocabulary(path));
  };
  EXPECT_NO_THROW(read(kLongestScoredPiece));
  EXPECT_THAT(error_of([&] { read(kLongestScoredPiece + 1); }),
              HasSubstr("piece 1 has 1025 bytes"));
}

}  // namespace
}  // namespace ballast
