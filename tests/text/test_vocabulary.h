// Small vocabularies and random texts for the tests of this folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "ballast/engine/tokenizer.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/utf8.h"

namespace ballast::test {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// Characters of all planes, with ASCII and spaces often.
inline std::string random_text(std::mt19937& random, std::size_t length) {
  static constexpr char32_t kTops[] = {0x80, 0x80, 0x250, 0x3100, 0xa000, 0x10000, 0x110000};
  std::string out;
  for (std::size_t i = 0; i < length; ++i) {
    const char32_t code = static_cast<char32_t>(random() % kTops[random() % std::size(kTops)]);
    append_utf8(out, random() % 5 == 0 || (code >= 0xd800 && code < 0xe000) ? U' ' : code);
  }
  return out;
}

inline std::string random_bytes(std::mt19937& random, std::size_t length) {
  std::string out(length, '\0');
  for (char& c : out) c = static_cast<char>(random() % 4 == 0 ? ' ' : random());
  return out;
}

/// The 256 bytes (ids 0 to 255), then what the merges make, then <s> and </s>.
inline Vocabulary byte_vocabulary(const std::vector<std::pair<std::string, std::string>>& merges) {
  Vocabulary v;
  v.source = "bytes";
  v.kind = Vocabulary::Kind::byte_bpe;
  v.pre = "gpt-2";
  for (int b = 0; b < 256; ++b) {
    v.pieces.push_back(to_byte_alphabet(std::string(1, static_cast<char>(b))));
  }
  for (const auto& [left, right] : merges) {
    v.merges.add(to_byte_alphabet(left), to_byte_alphabet(right));
    v.pieces.push_back(to_byte_alphabet(left + right));
  }
  v.types.assign(v.pieces.size(), TokenType::normal);
  for (const char* mark : {"<s>", "</s>"}) {
    v.pieces.push_back(mark);
    v.types.push_back(TokenType::control);
  }
  v.bos = static_cast<Token>(v.pieces.size()) - 2;
  v.eos = v.bos + 1;
  return v;
}

/// <unk> <s> </s>, the 256 bytes if asked, then these pieces with these scores.
inline Vocabulary score_vocabulary(const std::vector<std::pair<std::string, float>>& pieces,
                                   bool bytes) {
  Vocabulary v;
  v.source = "scores";
  v.kind = Vocabulary::Kind::sentencepiece;
  v.pieces = {"<unk>", "<s>", "</s>"};
  v.types = {TokenType::unknown, TokenType::control, TokenType::control};
  v.scores = {0, 0, 0};
  for (int b = 0; bytes && b < 256; ++b) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    v.pieces.push_back(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">");
    v.types.push_back(TokenType::byte);
    v.scores.push_back(0);
  }
  for (const auto& [piece, score] : pieces) {
    v.pieces.push_back(piece);
    v.types.push_back(TokenType::normal);
    v.scores.push_back(score);
  }
  v.unk = 0;
  v.bos = 1;
  v.eos = 2;
  return v;
}

}  // namespace ballast::test
