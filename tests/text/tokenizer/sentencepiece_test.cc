#include "text/tokenizer/sentencepiece_model.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "ballast/error.h"
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

}  // namespace
}  // namespace ballast
