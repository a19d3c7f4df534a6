// The vocabulary of a GGUF file, read by a few lines that share nothing with the library's reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "ballast/tokenizer.h"

namespace ballast::test {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class GgufBytes {
 public:
  explicit GgufBytes(std::string bytes) : bytes_(std::move(bytes)) {
    at_ = 16;
    for (auto count = take<std::uint64_t>(); count > 0; --count) {
      const std::string key = text();
      read(key, take<std::uint32_t>());
    }
  }
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<double>> number_lists;
  std::map<std::string, std::vector<std::string>> text_lists;

 private:
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.substr(at_, sizeof value).data(), sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto length = take<std::uint64_t>();
    std::string out = bytes_.substr(at_, length);
    at_ += length;
    return out;
  }
  double number(std::uint32_t type) {
    switch (type) {
      case 0:
        return take<std::uint8_t>();
      case 4:
        return take<std::uint32_t>();
      case 5:
        return take<std::int32_t>();
      case 6:
        return take<float>();
      case 7:
        return take<std::uint8_t>();
    }
    throw std::runtime_error("a type that these files do not use");
  }
  void read(const std::string& key, std::uint32_t type) {
    if (type == 8) {
      texts[key] = text();
    } else if (type != 9) {
      numbers[key] = number(type);
    } else {
      const auto item = take<std::uint32_t>();
      for (auto count = take<std::uint64_t>(); count > 0; --count) {
        if (item == 8) {
          text_lists[key].push_back(text());
        } else {
          number_lists[key].push_back(number(item));
        }
      }
    }
  }
  std::string bytes_;
  std::size_t at_ = 0;
};

inline Vocabulary gguf_vocabulary(const std::filesystem::path& path) {
  GgufBytes file(read_text(path));
  const auto id = [&](const std::string& name) {
    const auto found = file.numbers.find("tokenizer.ggml." + name + "_token_id");
    return found == file.numbers.end() ? kNoToken : static_cast<Token>(found->second);
  };
  Vocabulary v;
  v.source = path.filename();
  const bool bpe = file.texts["tokenizer.ggml.model"] == "gpt2";
  v.kind = bpe ? Vocabulary::Kind::byte_bpe : Vocabulary::Kind::sentencepiece;
  v.pieces = file.text_lists["tokenizer.ggml.tokens"];
  for (double s : file.number_lists["tokenizer.ggml.scores"]) {
    v.scores.push_back(static_cast<float>(s));
  }
  for (double t : file.number_lists["tokenizer.ggml.token_type"]) {
    v.types.push_back(static_cast<TokenType>(t));
  }
  for (const std::string& m : file.text_lists["tokenizer.ggml.merges"]) {
    const auto space = m.find(' ', 1);
    v.merges.emplace_back(m.substr(0, space), m.substr(space + 1));
  }
  v.pre = file.texts["tokenizer.ggml.pre"];
  if (!bpe) v.space_prefix = Vocabulary::SpacePrefix::always;
  v.bos = id("bos");
  v.eos = id("eos");
  v.unk = id("unknown");
  v.pad = id("padding");
  v.add_bos = file.numbers["tokenizer.ggml.add_bos_token"] != 0;
  v.chat_template = file.texts["tokenizer.chat_template"];
  return v;
}

}  // namespace ballast::test
