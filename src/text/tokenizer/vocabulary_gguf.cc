// Vocabularies of GGUF files.
#include <algorithm>

#include "ballast/engine/gguf.h"
#include "ballast/engine/tokenizer.h"
#include "base/fail.h"
#include "base/printable.h"
#include "text/tokenizer/check_sizes.h"
#include "text/tokenizer/pretokenizers.h"

namespace ballast {
namespace {

using Kind = Vocabulary::Kind;

void read_pieces(Vocabulary& vocabulary, const Gguf& file) {
  const auto pieces = file.get<std::vector<std::string_view>>("tokenizer.ggml.tokens");
  check_pieces(pieces.size(), vocabulary.source);
  for (std::string_view piece : pieces) {
    vocabulary.pieces.emplace_back(piece);
  }
  if (const GgufEntry* entry = file.entry("tokenizer.ggml.token_type")) {
    check_pieces(entry->count, vocabulary.source);
  }
  const auto types = file.find<std::vector<std::int64_t>>("tokenizer.ggml.token_type");
  for (std::int64_t type : types.value_or(std::vector<std::int64_t>())) {
    require(type >= 0 && type <= 6, "{}: the token type {} in tokenizer.ggml.token_type is unknown",
            vocabulary.source, type);
    // 0 is "undefined", a normal token.
    vocabulary.types.push_back(type == 0 ? TokenType::normal : static_cast<TokenType>(type));
  }
}

void read_merges(Vocabulary& vocabulary, const Gguf& file) {
  for (std::string_view merge : file.get<std::vector<std::string_view>>("tokenizer.ggml.merges")) {
    const std::size_t space = merge.find(' ', 1);
    require(space != std::string_view::npos && space + 1 < merge.size(),
            "{}: '{}' in tokenizer.ggml.merges is not two pieces with a space between",
            vocabulary.source, printable(merge));
    vocabulary.merges.add(merge.substr(0, space), merge.substr(space + 1));
  }
}

void read_special(Vocabulary& vocabulary, const Gguf& file) {
  const auto id = [&](const std::string& name, Token otherwise) {
    const auto value = file.find<std::uint64_t>("tokenizer.ggml." + name + "_token_id");
    if (!value) return otherwise;
    // Some writers put a number outside the vocabulary for "none".
    return *value < vocabulary.pieces.size() ? static_cast<Token>(*value) : kNoToken;
  };
  vocabulary.bos = id("bos", vocabulary.bos);
  vocabulary.eos = id("eos", vocabulary.eos);
  vocabulary.eot = id("eot", vocabulary.eot);
  vocabulary.unk = id("unknown", vocabulary.unk);
  vocabulary.pad = id("padding", vocabulary.pad);
  if (const Token eom = id("eom", kNoToken); eom != kNoToken) vocabulary.ends.push_back(eom);
  const auto flag = [&](const char* key, bool otherwise) {
    return file.find<bool>(key).value_or(otherwise);
  };
  vocabulary.add_bos =
      flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos) && vocabulary.bos != kNoToken;
  vocabulary.add_eos =
      flag("tokenizer.ggml.add_eos_token", vocabulary.add_eos) && vocabulary.eos != kNoToken;
}

// Phi-3's special tokens absorb the line end after them; the file has no key for it.
void strip_after_phi3_marks(Vocabulary& vocabulary) {
  for (std::size_t i = 0; i < vocabulary.types.size(); ++i) {
    const std::string& piece = vocabulary.pieces[i];
    const bool is_mark =
        vocabulary.types[i] == TokenType::control || vocabulary.types[i] == TokenType::user_defined;
    if (is_mark && piece != "<unk>" && piece != "<s>" && piece != "<|endoftext|>") {
      vocabulary.strip_right.push_back(static_cast<Token>(i));
    }
  }
}

bool is_phi3(const Gguf& file) {
  std::string name(file.find<std::string_view>("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

}  // namespace

Vocabulary read_vocabulary(const Gguf& file) try {
  Vocabulary vocabulary;
  vocabulary.source = file.path().string();
  const auto model = file.get<std::string_view>("tokenizer.ggml.model");
  read_pieces(vocabulary, file);
  if (model == "gpt2") {
    vocabulary.kind = Kind::byte_bpe;
    vocabulary.pre = file.find<std::string_view>("tokenizer.ggml.pre").value_or("default");
    vocabulary.add_bos = find_pre_tokenizer(vocabulary.pre, vocabulary.source).add_bos;
    read_merges(vocabulary, file);
  } else if (model == "llama") {
    vocabulary.kind = Kind::sentencepiece;
    vocabulary.scores = file.get<std::vector<float>>("tokenizer.ggml.scores");
    const bool prefix = file.find<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
    vocabulary.space_prefix =
        prefix ? Vocabulary::SpacePrefix::always : Vocabulary::SpacePrefix::never;
    const auto if_there = [&](Token id) {
      return static_cast<std::size_t>(id) < vocabulary.pieces.size() ? id : kNoToken;
    };
    vocabulary.unk = if_there(0);
    vocabulary.bos = if_there(1);
    vocabulary.eos = if_there(2);
    vocabulary.add_bos = true;
    if (is_phi3(file)) strip_after_phi3_marks(vocabulary);
  } else {
    fail(ErrorCode::unsupported,
         "{}: the vocabulary is of kind '{}'; supported are 'gpt2' (byte-level BPE) and 'llama' "
         "(SentencePiece)",
         vocabulary.source, model);
  }
  read_special(vocabulary, file);
  const auto text = [&](const char* key) {
    return std::string(file.find<std::string_view>(key).value_or(std::string_view()));
  };
  vocabulary.chat_template = text("tokenizer.chat_template");
  vocabulary.tool_template = text("tokenizer.chat_template.tool_use");
  return vocabulary;
} catch (const Error& error) {
  rethrow_from_file(error);
}

}  // namespace ballast
