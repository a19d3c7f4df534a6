#include "text/tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "ballast/error.h"
#include "base/os/memory.h"
#include "formats/mutate.h"
#include "heap_bytes.h"
#include "paths.h"
#include "temp_dir.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace ballast {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<Token>;

json byte_level() {
  return json::parse(R"({
    "model": {"type": "BPE", "vocab": {"h": 0, "e": 1, "Ġ": 2, "he": 3, "Ġhe": 4, "x": 5, "Ã": 6,
                                       "©": 7, "1": 8, "Ċ": 9},
              "merges": ["h e", ["Ġ", "he"]], "unk_token": null},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "added_tokens": [{"id": 10, "content": "<s>", "special": true},
                     {"id": 12, "content": "<tool>", "special": false, "rstrip": true}],
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"ids": [10]}}}})");
}

json with_marks() {
  return json::parse(R"({
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "fuse_unk": true,
              "vocab": {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "a": 4, "b": 5, "▁a": 6,
                        "ab": 7, "▁ab": 8},
              "merges": ["▁ a", "▁a b", "a b"]},
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}]})");
}

Tokenizer read(const json& root) { return Tokenizer(parse_tokenizer_json(root.dump(), "json")); }

std::string error_of(const json& root) {
  try {
    read(root);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(TokenizerJson, ErrorsShowWhatCannotBePrinted) {
  json root = byte_level();
  root["model"]["merges"].push_back(std::string("\0\x1b", 2));
  EXPECT_THAT(error_of(root), HasSubstr(R"(merge '\x00\x1b' is not two pieces)"));
  root = with_marks();
  root["model"]["merges"].push_back({std::string("\0", 1), "a"});
  EXPECT_THAT(error_of(root), HasSubstr(R"(merge 3 ('\x00' 'a') needs the piece)"));
}

TEST(TokenizerJson, IdsOutOfRangeAreErrors) {
  for (const json& id : {json(-1), json(4294967296), json(4294967297), json(1e300), json(0.5),
                         json("0"), json(true), json(2147483647)}) {
    json root = byte_level();
    root["added_tokens"][0]["id"] = id;
    EXPECT_THAT(error_of(root), HasSubstr("is not the id of a token")) << id;
    root = byte_level();
    root["model"]["vocab"]["x"] = id;
    EXPECT_THAT(error_of(root), HasSubstr("is not the id of a token")) << id;
    root = byte_level();
    root["post_processor"]["special_tokens"]["<s>"]["ids"][0] = id;
    EXPECT_THAT(error_of(root), HasSubstr("is not the id of a token")) << id;
  }
}

TEST(TokenizerJson, DeepPartsAreRefusedBeforeTheyAreShown) {
  for (const char* part : {"normalizer", "added_tokens"}) {
    json root = byte_level();
    root[part] = nullptr;
    std::string text = root.dump();
    const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
    const std::string empty = std::string("\"") + part + "\":null";
    text.replace(text.find(empty), empty.size(), std::string("\"") + part + "\":" + deep);
    try {
      parse_tokenizer_json(text, "json");
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), "json: JSON nested deeper than 64");
    }
  }
}

TEST(TokenizerJson, ByteLevel) {
  const Tokenizer t = read(byte_level());
  EXPECT_EQ(t.encode("he hex"), (Ids{10, 3, 4, 5}));
  EXPECT_EQ(t.encode("é<tool>\nhe", {.add_special = false}), (Ids{6, 7, 12, 3}));
  EXPECT_EQ(t.encode("<s>he", {.add_special = false, .parse_special = true}), (Ids{10, 3}));
  EXPECT_EQ(t.decode(Ids{10, 6, 7, 12}), "é<tool>");
  EXPECT_EQ(t.vocabulary().bos, 10);
  EXPECT_EQ(t.size(), 13u);
}

TEST(TokenizerJson, CharactersWithMarkedSpaces) {
  const Tokenizer t = read(with_marks());
  EXPECT_EQ(t.encode("ab ab"), (Ids{8, 8}));
  EXPECT_EQ(t.encode("bab"), (Ids{3, 5, 7}));
  EXPECT_EQ(t.encode("é"), (Ids{3, 1, 2}));
  EXPECT_EQ(t.encode("zz"), (Ids{3, 0}));
  EXPECT_EQ(t.decode(t.encode("ab é")), "ab é");
}

TEST(TokenizerJson, MetaspaceVariants) {
  json root = with_marks();
  root.erase("normalizer");
  root["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  EXPECT_EQ(read(root).encode(" ab"), Ids{8});  // it has its space already
  EXPECT_EQ(read(root).encode("ab"), Ids{8});
  root["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(read(root).encode("ab"), Ids{7});
}

TEST(TokenizerJson, PreTokenizersCut) {
  json root = byte_level();
  root["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "e"}, "behavior": "Isolated", "invert": false},
    {"type": "Digits", "individual_digits": true},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  EXPECT_EQ(read(root).encode("he1", {.add_special = false}), (Ids{0, 1, 8}));
  root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  EXPECT_EQ(read(root).encode("he", {.add_special = false}), Ids{4});
  EXPECT_EQ(read(root).encode(" he", {.add_special = false}), Ids{4});
  root["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(read(root).encode(" e\u0301", {.add_special = false}), (Ids{2, 6, 7}));
}

TEST(TokenizerJson, NamesWhatItDoesNotSupport) {
  const auto with = [](const char* key, json value) {
    json root = byte_level();
    root[key] = std::move(value);
    return error_of(root);
  };
  EXPECT_THAT(with("normalizer", {{"type", "Lowercase"}}), HasSubstr("Lowercase"));
  EXPECT_THAT(with("pre_tokenizer", {{"type", "Whitespace"}}), HasSubstr("Whitespace"));
  EXPECT_THAT(with("model", {{"type", "WordPiece"}}), HasSubstr("WordPiece"));
  EXPECT_THAT(with("post_processor", {{"type", "BertProcessing"}}), HasSubstr("BertProcessing"));
  EXPECT_THAT(with("model", nullptr), HasSubstr("model"));
  EXPECT_THAT(with("model", "BPE"), HasSubstr("'model'"));
  EXPECT_THAT(with("added_tokens", "BPE"), HasSubstr("'added_tokens'"));
  EXPECT_THAT(with("added_tokens", {{{"id", 4000000000u}, {"content", "x"}}}), HasSubstr("json"));
  EXPECT_THAT(with("added_tokens", {{{"id", 1000000}, {"content", "x"}}}), HasSubstr("1000000"));
  // Each may lie beyond all before it: not beyond what is read.
  json many = json::array();
  for (const int id : {60'000, 180'000, 420'000, 900'000, 1'800'000}) {
    many.push_back({{"id", id}, {"content", std::to_string(id)}});
  }
  EXPECT_THAT(with("added_tokens", many), HasSubstr("a vocabulary of over 1048576 pieces"));
  EXPECT_THAT(with("pre_tokenizer", nullptr), HasSubstr("ByteLevel"));
  json root = byte_level();
  root["model"]["vocab"]["far"] = 1'000'000'000;
  EXPECT_THAT(error_of(root), HasSubstr("'far' has the id 1000000000"));
  root["model"]["vocab"]["far"] = -1;
  EXPECT_THAT(error_of(root), HasSubstr("'far'"));
  root["model"]["vocab"]["far"] = 0;
  EXPECT_THAT(error_of(root), HasSubstr("the same id 0"));
  root = byte_level();
  root["model"]["merges"] = {"he"};
  EXPECT_THAT(error_of(root), HasSubstr("'he'"));
  root["model"]["merges"] = {"e x"};
  EXPECT_THAT(error_of(root), HasSubstr("'ex'"));
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 50; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  EXPECT_THAT(with("normalizer", nested), HasSubstr("nested"));
  EXPECT_THROW(parse_tokenizer_json("{", "json"), Error);
  EXPECT_THROW(parse_tokenizer_json("[]", "json"), Error);
}

TEST(TokenizerJson, DamagedFilesGiveATokenizerOrAnError) {
  int broken = 0;
  for (const std::string& valid : {byte_level().dump(), with_marks().dump()}) {
    for (std::uint32_t seed = 0; seed < 700; ++seed) {
      try {
        const Tokenizer t(parse_tokenizer_json(mutate(valid, seed), "json"));
        t.decode(t.encode("he ab\xff <s>é 1", {.parse_special = true}), {.special = true});
      } catch (const Error&) {
        ++broken;
      }
    }
  }
  EXPECT_GT(broken, 500);
}

class HuggingFaceFolder : public testing::Test {
 protected:
  const TempDir parent_;
  const std::filesystem::path folder_ = parent_ / "tokenizer";
};

TEST_F(HuggingFaceFolder, ConfigAndTemplateBesideTokenizerJson) {
  test::write_text(folder_ / "tokenizer.json", byte_level().dump());
  test::write_text(folder_ / "tokenizer_config.json",
                   R"({"add_bos_token": false, "eos_token": {"content": "<tool>"},
                       "chat_template": [{"name": "tool_use", "template": "no"},
                                         {"name": "default", "template": "yes"}]})");
  Vocabulary v = read_vocabulary(folder_);
  EXPECT_EQ(v.eos, 12);
  EXPECT_FALSE(v.add_bos);
  EXPECT_EQ(v.chat_template, "yes");
  test::write_text(folder_ / "chat_template.jinja", "newer");
  EXPECT_EQ(read_vocabulary(folder_ / "tokenizer.json").chat_template, "newer");
}

TEST_F(HuggingFaceFolder, TheTemplateOfAProcessorIsReadWhereThereIsNoOther) {
  test::write_text(folder_ / "tokenizer.json", byte_level().dump());
  const std::filesystem::path file = folder_ / "chat_template.json";
  test::write_text(file, R"({"chat_template": "{{ 1 }}"})");
  EXPECT_EQ(read_vocabulary(folder_).chat_template, "{{ 1 }}");
  EXPECT_EQ(read_vocabulary(folder_ / "tokenizer.json").chat_template, "{{ 1 }}");
  test::write_text(file, R"({"chat_template": [{"name": "default", "template": "d"},
                                               {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(read_vocabulary(folder_).chat_template, "d");
  EXPECT_EQ(read_vocabulary(folder_).tool_template, "t");
  test::write_text(file, R"({"chat_template": [{"name": 3}]})");
  EXPECT_THROW(read_vocabulary(folder_), Error);
  test::write_text(folder_ / "chat_template.jinja", "own");
  EXPECT_EQ(read_vocabulary(folder_).chat_template, "own");
}

TEST_F(HuggingFaceFolder, EndTokensAndTheTemplateForTools) {
  test::write_text(folder_ / "tokenizer.json", byte_level().dump());
  test::write_text(folder_ / "tokenizer_config.json", R"({"chat_template":
      [{"name": "default", "template": "yes"}, {"name": "tool_use", "template": "tools"}]})");
  test::write_text(folder_ / "config.json", R"({"eos_token_id": [0, 1]})");
  Vocabulary v = read_vocabulary(folder_);
  EXPECT_EQ(v.ends, (Ids{0, 1}));
  EXPECT_EQ(v.tool_template, "tools");
  test::write_text(folder_ / "generation_config.json", R"({"temperature": 1})");
  EXPECT_EQ(read_vocabulary(folder_).ends, (Ids{0, 1}));
  test::write_text(folder_ / "generation_config.json", R"({"eos_token_id": [2, 12, 99, -1]})");
  test::write_text(folder_ / "additional_chat_templates" / "tool_use.jinja", "newer");
  v = read_vocabulary(folder_ / "tokenizer.json");
  EXPECT_EQ(v.ends, (Ids{2, 12}));
  EXPECT_EQ(v.tool_template, "newer");
  test::write_text(folder_ / "generation_config.json", R"({"eos_token_id": 3})");
  EXPECT_EQ(read_vocabulary(folder_).ends, Ids{3});
  test::write_text(folder_ / "generation_config.json", R"({"eos_token_id": ["</s>"]})");
  EXPECT_THROW(read_vocabulary(folder_), Error);
}

TEST(TokenizerJson, DecodersThatDoMoreAreRefused) {
  json root = with_marks();
  const json marks = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  root["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {marks,
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  EXPECT_EQ(error_of(root), "");
  for (const json& other :
       {json{{"type", "Replace"}, {"pattern", {{"String", "\n "}}}, {"content", "\n"}},
        json{{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 0}},
        json{{"type", "WordPiece"}}}) {
    json all = root;
    all["decoder"]["decoders"].push_back(other);
    EXPECT_THAT(error_of(all), HasSubstr("json: decoder {"));
    EXPECT_THAT(error_of(all), HasSubstr("is not supported"));
  }
}

// 262,000 pieces and 790,000 short merges without blanks: the worst that a file may hold.
TEST(TokenizerJson, TakesFourTimesItsText) {
  if (!test::kHeapCanBeAsked) GTEST_SKIP() << "a sanitizer keeps what is freed";
  std::string vocabulary = R"({"pre_tokenizer":{"type":"ByteLevel"},"model":{"vocab":{"a":0)";
  std::string merges = R"(},"merges":[["1","2"])";
  for (int i = 1; i < 262'144; ++i) {
    vocabulary += ",\"" + std::to_string(i) + "\":" + std::to_string(i);
    const std::string text = std::to_string(i);
    for (std::size_t cut = 1; cut < text.size() && cut < 4; ++cut) {
      if (text[cut] != '0') {
        merges += ",[\"" + text.substr(0, cut) + "\",\"" + text.substr(cut) + "\"]";
      }
    }
  }
  const std::string text = std::move(vocabulary) + merges + "]}}";
  merges = {};
  const std::size_t before = peak_memory();
  const Tokenizer t(parse_tokenizer_json(text, "json"));
  EXPECT_EQ(t.encode("1234"), Ids{1234});
  EXPECT_LT(peak_memory() - before, 3 * text.size() + (std::size_t{64} << 20));
}

TEST(TokenizerJson, TooManyPiecesAreRefused) {
  std::string bpe = R"({"model":{"vocab":{"a":0)", unigram = R"({"model":{"vocab":[["a",0])";
  for (std::size_t i = 0; i < kMostPieces; ++i) {
    bpe += ",\"a\":0";
    unigram += ",[\"a\",0]";
  }
  for (const std::string& text : {bpe, unigram}) {
    try {
      parse_tokenizer_json(text, "json");
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "json: a vocabulary of over 1048576 pieces; larger ones are not read");
    }
  }
  Vocabulary vocabulary = test::byte_vocabulary({});
  vocabulary.pieces.resize(kMostPieces + 1);
  EXPECT_THROW(Tokenizer(std::move(vocabulary)), Error);
  std::string model;  // of pieces without content
  for (std::size_t i = 0; i <= kMostPieces; ++i) model += std::string("\x0a\0", 2);
  EXPECT_THROW(SentencePieceModel(model, "model"), Error);
}

TEST(TokenizerJson, KindsOfVocabularies) {
  json root = byte_level();
  root["model"]["vocab"] = json::array({json::array({"h", "x"})});
  EXPECT_THAT(error_of(root), HasSubstr("in 'model': type must be number"));
  root["model"]["vocab"] = {{"h", json::array({"h", 1})}};
  EXPECT_THAT(error_of(root), HasSubstr("'vocab' of a BPE model is not an object"));
  root = byte_level();
  root["model"]["merges"] = {{"h", "h e"}};
  EXPECT_THAT(error_of(root), HasSubstr("'merges' is not a list"));
  root["model"]["merges"] = json::array({7});
  EXPECT_THAT(error_of(root), HasSubstr("in 'merges': number is no text"));
  root["model"].erase("merges");
  EXPECT_THAT(error_of(root), HasSubstr("in 'model': key 'merges' not found"));
}

TEST_F(HuggingFaceFolder, VocabAndMerges) {
  test::write_text(folder_ / "vocab.json",
                   R"({"<pad>": 0, "</s>": 1, "h": 2, "e": 3, "he": 4, "Ġ": 5, "Ġhe": 6})");
  test::write_text(folder_ / "merges.txt", "#version: 0.2\r\nh e\r\nĠ he\r\n");
  test::write_text(folder_ / "tokenizer_config.json",
                   R"({"add_bos_token": true, "bos_token": {"content": "</s>"},
                       "eos_token": "</s>"})");
  const Tokenizer t(read_vocabulary(folder_));
  EXPECT_EQ(t.encode("he he"), (Ids{1, 4, 6}));
  EXPECT_EQ(t.decode(Ids{1, 4, 6}), "he he");
  EXPECT_TRUE(t.is_end(1));
}

// They once went through a writer of JSON, whose exception is no Error.
TEST_F(HuggingFaceFolder, MergesThatAreNotUtf8AreAnError) {
  test::write_text(folder_ / "vocab.json", R"({"h": 0, "e": 1, "he": 2})");
  test::write_text(folder_ / "merges.txt", "h e\n\xb1 \xff\n");
  EXPECT_THROW(Tokenizer(read_vocabulary(folder_)), Error);
}

TEST_F(HuggingFaceFolder, SaysWhatIsMissing) {
  EXPECT_THROW(read_vocabulary(folder_), Error);
  std::filesystem::create_directories(folder_);
  try {
    read_vocabulary(folder_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("expected tokenizer.json, tokenizer.model"));
  }
  test::write_text(folder_ / "tokenizer.json", "{}");
  test::write_text(folder_ / "tokenizer_config.json", "[");
  EXPECT_THROW(read_vocabulary(folder_), Error);
}

// The same vocabulary in both forms gives the same ids.
TEST_F(HuggingFaceFolder, AgreesWithGguf) {
  const std::string path = BALLAST_SHARED_DATA "/tokenizers/ggml-vocab-gpt-2.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const Vocabulary gguf = read_vocabulary(path);
  json vocab;
  std::string merges;
  for (std::size_t i = 0; i < gguf.pieces.size(); ++i) vocab[gguf.pieces[i]] = i;
  for (std::size_t i = 0; i < gguf.merges.size(); ++i) {
    const auto [left, right] = gguf.merges[i];
    merges.append(left).append(" ").append(right).append("\n");
  }
  test::write_text(folder_ / "vocab.json", vocab.dump());
  test::write_text(folder_ / "merges.txt", merges);
  const Tokenizer a(gguf);
  const Tokenizer b(read_vocabulary(folder_));
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const std::string text = test::random_text(random, 50) + " the Don't it's 123";
    EXPECT_EQ(a.encode(text), b.encode(text));
  }
}

}  // namespace
}  // namespace ballast
