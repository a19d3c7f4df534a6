#include "text/tokenizer/character_map.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ballast/error.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ballast {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kLeaf = 1u << 8;

std::uint32_t to(std::size_t offset) { return static_cast<std::uint32_t>(offset) << 10; }

/// The rule "A" -> "b": the root's children begin at unit 256, and what ends "A" is unit 320.
struct Map {
  std::array<std::uint32_t, 512> units{};
  std::string texts = std::string("b\0", 2);
  Map() {
    units.fill(1u << 31);  // no label
    units[0] = to(256);
    units[256 + 'A'] = 'A' | kLeaf | to(1);
    units[(256 + 'A') ^ 1] = 1u << 31 | 0;
  }
  std::string bytes() const {
    const auto size = static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t));
    std::string out(reinterpret_cast<const char*>(&size), sizeof(size));
    return out.append(reinterpret_cast<const char*>(units.data()), size) + texts;
  }
};

std::string error_of(const std::string& map) {
  try {
    check_character_map(map, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

SentencePieceParts parts_with(const std::string& map) {
  SentencePieceParts parts;
  parts.pieces = {"<unk>", "\u2581", "b"};
  parts.scores = {0, -1, -2};
  parts.types = {TokenType::unknown, TokenType::normal, TokenType::normal};
  parts.character_map = map;
  return parts;
}

TEST(CharacterMap, AReplacementHasALimit) {
  Map map;
  map.texts.assign(256, 'b').push_back('\0');
  EXPECT_EQ(error_of(map.bytes()), "");
  map.texts.assign(257, 'b').push_back('\0');
  EXPECT_EQ(error_of(map.bytes()), "file: precompiled_charsmap: a replacement has over 256 bytes");
}

TEST(CharacterMap, AWholeOneIsFollowed) {
  EXPECT_EQ(error_of(""), "");
  EXPECT_EQ(error_of(Map().bytes()), "");
  std::vector<Token> tokens;
  SentencePieceModel(serialize(parts_with(Map().bytes())), "file").encode("Ab", tokens);
  EXPECT_EQ(tokens, (std::vector<Token>{1, 2, 2}));
}

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = i; j < i + 3; ++j)
      three = three << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0);
    for (std::size_t j = 0; j < 4; ++j)
      out += i + j > bytes.size() ? '=' : kDigits[three >> (18 - 6 * j) & 63];
  }
  return out;
}

TEST(CharacterMap, ATokenizerJsonHasItInBase64) {
  for (const char* text : {"b", "bb", "bbb"}) {  // each remainder of three
    Map map;
    map.texts.assign(text);
    map.texts.push_back('\0');
    auto root = nlohmann::json::parse(R"({
      "normalizer": {"type": "Precompiled"},
      "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"},
      "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["\u2581", -1], ["b", -2]]}
    })");
    root["normalizer"]["precompiled_charsmap"] = base64(map.bytes());
    std::vector<Token> expected = {1};
    expected.insert(expected.end(), map.texts.size(), 2);
    EXPECT_EQ(Tokenizer(parse_tokenizer_json(root.dump(), "file")).encode("Ab"), expected) << text;
  }
}

TEST(CharacterMap, NoTextMayLeadOutOfIt) {
  Map bad;
  bad.units[0] = to(512);  // children behind the end
  EXPECT_THAT(error_of(bad.bytes()), HasSubstr("a node leads to unit 767 of 512"));
  bad = {};
  bad.units[256 + 'A'] = 'A' | to(512);
  EXPECT_THAT(error_of(bad.bytes()), HasSubstr("beyond its end"));
  bad = {};
  bad.units[(256 + 'A') ^ 1] = 1u << 31 | 2;  // behind "b"
  EXPECT_THAT(error_of(bad.bytes()), HasSubstr("beyond its end"));
  bad = {};
  bad.texts = "b";  // without an end
  EXPECT_THAT(error_of(bad.bytes()), HasSubstr("no compiled rules"));
  bad = {};
  bad.units[256 + 'A'] = 'A' | kLeaf | to('A');  // its children are the root's: it is one of them
  EXPECT_THAT(error_of(bad.bytes()), HasSubstr("goes round"));
  // 15 bytes that once made the library read out of bounds.
  EXPECT_NE(error_of(std::string("\x08\0\0\0\xff\xff\xff\xff\0\0\0\0aaa", 15)), "");
  for (std::size_t size : {1, 3, 4, 5, 8, 100})
    EXPECT_NE(error_of(Map().bytes().substr(0, size)), "") << size;
}

TEST(CharacterMap, EveryReaderOfModelsChecksIt) {
  Map bad;
  bad.units[0] = to(512);
  const auto load = [&](const std::string& model) -> std::string {
    try {
      SentencePieceModel(model, "a.model").vocabulary();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(load(serialize(parts_with(bad.bytes()))), HasSubstr("a.model: precompiled_charsmap"));
  SentencePieceParts empty_piece = parts_with("");
  empty_piece.pieces[2] = "";
  EXPECT_THAT(load(serialize(empty_piece)), HasSubstr("a.model: not a SentencePiece model"));
  EXPECT_THAT(load("\x1b"), HasSubstr("a.model: not a SentencePiece model"));
}

struct Rule {
  std::string from, to;
};

std::string map_of(const Rule& rule) {
  std::size_t at = 0, base = 256;  // the node, and its children
  std::vector<std::uint32_t> units(256 * (rule.from.size() + 2), 1u << 31);
  units[0] = to(base);
  for (std::size_t i = 0; i < rule.from.size(); ++i) {
    const auto byte = static_cast<unsigned char>(rule.from[i]);
    at = base ^ byte;
    const std::size_t next = 256 * (i + 2);
    units[at] = byte | to(at ^ next);
    if (i + 1 == rule.from.size()) units[at] |= kLeaf, units[next] = 1u << 31 | 0;
    base = next;
  }
  const auto size = static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t));
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(reinterpret_cast<const char*>(units.data()), size) += rule.to + '\0';
  EXPECT_EQ(error_of(bytes), "") << rule.from;
  return bytes;
}

TEST(CharacterMap, RulesThatCrossWordsAreSeen) {
  const auto apart = [](const Rule& rule) { return keeps_words_apart(map_of(rule)); };
  EXPECT_TRUE(keeps_words_apart(""));
  for (const Rule& rule : {Rule{"A", "a"},
                           {"ab", "c"},
                           {"\xc2\xa0", " "},
                           {"\xc2\xa8", " x"},
                           {" \xcc\x88", "y"},
                           {"-", ""},
                           {"- b", "c"},
                           {"\t", " "}})
    EXPECT_TRUE(apart(rule)) << rule.from;
  for (const Rule& rule : {Rule{" ", "x"},
                           {"a ", "x"},
                           {"-a ", "x"},
                           {" a", "x"},
                           {" 1x", "x"},
                           {"A", ""},
                           {"A", "a "},
                           {"A", " "},
                           {"a-", " "},
                           {"a", "\u2581"}})
    EXPECT_FALSE(apart(rule)) << rule.from;
}

// What follows "!" and "A" is the same part of the trie, which is seen without a letter first.
TEST(CharacterMap, WhatLettersShareWithOthersIsSeenForBoth) {
  std::vector<std::uint32_t> units(256 * 5, 1u << 31);
  const auto child = [&](std::size_t base, char byte, std::size_t next) {
    const std::size_t at = base ^ static_cast<unsigned char>(byte);
    units[at] = static_cast<unsigned char>(byte) | to(at ^ next);
    return at;
  };
  units[0] = to(256);
  child(256, '!', 512);
  child(256, 'A', 512);
  child(512, '-', 768);
  units[child(768, '.', 1024)] |= kLeaf;  // "!-." and "A-." become "b c"
  units[1024] = 1u << 31 | 0;
  const auto size = static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t));
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(reinterpret_cast<const char*>(units.data()), size) += std::string("b c\0", 4);
  EXPECT_EQ(error_of(bytes), "");
  EXPECT_FALSE(keeps_words_apart(bytes));
  units[256 ^ 'A'] = 1u << 31;
  bytes.replace(sizeof(size), size, reinterpret_cast<const char*>(units.data()), size);
  EXPECT_TRUE(keeps_words_apart(bytes));
}

TEST(CharacterMap, CharactersOfTheRulesAreFound) {
  RuleBytes found;
  add_rule_bytes("", found);
  EXPECT_FALSE(found.may_hold("a") || found.may_hold("中"));
  add_rule_bytes(map_of({"b\u0308ü", "x"}), found);
  for (const char* held : {"b", "\u0308", "ü"}) EXPECT_TRUE(found.may_hold(held)) << held;
  for (const char* other : {"a", "x", "é", "\u0408", "中"})
    EXPECT_FALSE(found.may_hold(other)) << other;
  add_rule_bytes(map_of({"文字", "x"}), found);
  EXPECT_TRUE(found.may_hold("文") && found.may_hold("字"));
  EXPECT_FALSE(found.may_hold("中"));
  add_rule_bytes(map_of({"!\xe4", "x"}), found);  // ends within a character
  EXPECT_TRUE(found.may_hold("中"));
}

// A text of which a rule takes two characters is not cut between them, nor beside.
TEST(CharacterMap, TextsAreNotCutWhereARuleReaches) {
  SentencePieceParts parts = parts_with(map_of({"文文", "b"}));
  parts.pieces = {"<unk>", "文", "中", "b"};
  parts.scores = {0, -1, -1, -1};
  parts.types.assign(4, TokenType::normal);
  parts.types[0] = TokenType::unknown;
  const SentencePieceModel model(serialize(parts), "file");
  EXPECT_EQ(model.next_cut("中文文中中", 1), 12u);
  std::vector<Token> whole, cut;
  model.encode("中文文中中", whole);
  model.encode("中文文中中", cut, 1);
  EXPECT_EQ(cut, whole);
}

}  // namespace
}  // namespace ballast
