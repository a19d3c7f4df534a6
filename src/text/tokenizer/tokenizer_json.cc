#include "text/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/fail.h"
#include "base/json_reason.h"
#include "base/printable.h"
#include "formats/json.h"
#include "formats/json_text.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace ballast {
namespace {

using json = SortedJson;
using Kind = Vocabulary::Kind;
using SpacePrefix = Vocabulary::SpacePrefix;

constexpr const char* kSpace = "\u2581";
constexpr int kDeepest = 8;  // sequences within sequences

std::string base64(std::string_view text) {
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (char c : text) {
    const auto value = std::string_view(
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                           "0123456789+/")
                           .find(c);
    if (value == std::string_view::npos) break;  // the padding
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count));
    }
  }
  return out;
}

// An id as it may stand in a file: a whole number that a Token holds.
Token token_id(const json& id, const std::string& source, std::string_view name) {
  require(id.is_number_unsigned() &&
              id.get<std::uint64_t>() < std::uint64_t{std::numeric_limits<Token>::max()},
          ErrorCode::bad_file, "{}: {} is not the id of a token ('{}')", source,
          id.is_number() ? id.dump() : id.type_name(), printable(name));
  return static_cast<Token>(id.get<std::uint64_t>());
}

// Collects the properties that the parts of a tokenizer.json define.
class Reader {
 public:
  Reader(const json& root, const std::string& source) : root_(root), source_(source) {
    vocabulary_.source = source;
  }

  Vocabulary read() {
    in("normalizer", [&](const json& part) { read_normalizer(part, 0); });
    in("pre_tokenizer", [&](const json& part) { read_pre_tokenizer(part, 0); });
    in("model", [&](const json& part) { read_model(part); });
    in("added_tokens", [&](const json& part) {
      for (const json& token : part) {
        add_token(vocabulary_,
                  token_id(token.at("id"), source_, token.at("content").get<std::string>()), token);
      }
    });
    in("post_processor", [&](const json& part) { read_post_processor(part, 0); });
    return std::move(vocabulary_);
  }

 private:
  template <typename Read>
  void in(const char* name, const Read& read) {
    const auto part = root_.find(name);
    if (part == root_.end() || part->is_null()) {
      require(std::string_view(name) != "model", "{}: '{}' is missing", source_, name);
      return;
    }
    try {
      read(*part);
    } catch (const json::exception& e) {
      fail("{}: in '{}': {}", source_, name, json_reason(e));
    }
  }

  // Calls read for each item of a Sequence.
  template <typename Read>
  void each(const json& part, const char* items, int depth, const Read& read) {
    require(depth < kDeepest, "{}: '{}' nested more than {} deep", source_, items, kDeepest);
    for (const json& item : part.at(items)) read(item, depth + 1);
  }

  [[noreturn]] void unsupported(const char* what, const json& part) {
    fail(ErrorCode::unsupported, "{}: {} {} is not supported", source_, what,
         part.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 200));
  }

  void read_normalizer(const json& part, int depth) {
    const auto type = part.at("type").get<std::string>();
    if (type == "Sequence") {
      each(part, "normalizers", depth, [&](const json& p, int d) { read_normalizer(p, d); });
    } else if (type == "NFC") {
      vocabulary_.nfc = true;
    } else if (type == "Prepend" && part.at("prepend") == kSpace) {
      vocabulary_.space_prefix = SpacePrefix::always;
    } else if (type == "Precompiled") {
      library_.character_map = base64(part.at("precompiled_charsmap").get<std::string>());
    } else if (type == "Replace" && part.at("pattern") == json{{"String", " "}} &&
               part.at("content") == kSpace) {
      spaces_are_marked_ = true;
    } else if (type == "Replace" && part.at("pattern") == json{{"Regex", " {2,}"}}) {
      library_.remove_extra_spaces = true;
    } else {
      unsupported("normalizer", part);
    }
  }

  void read_pre_tokenizer(const json& part, int depth) {
    const auto type = part.at("type").get<std::string>();
    if (type == "Sequence") {
      each(part, "pretokenizers", depth, [&](const json& p, int d) { read_pre_tokenizer(p, d); });
    } else if (type == "ByteLevel") {
      byte_level_ = true;
      if (part.value("add_prefix_space", false)) {
        if (!vocabulary_.splits.empty()) unsupported("after other pre-tokenizers", part);
        vocabulary_.space_prefix = SpacePrefix::always;
        vocabulary_.prefix_unless_space = true;
      }
      if (part.value("use_regex", true)) vocabulary_.splits.push_back(gpt2_split());
    } else if (type == "Split") {
      read_split(part);
    } else if (type == "Digits") {
      vocabulary_.splits.push_back(part.value("individual_digits", false) ? R"(\p{N})"
                                                                          : R"(\p{N}+)");
    } else if (type == "Metaspace") {
      read_metaspace(part);
    } else if (type == "WhitespaceSplit") {
      library_.remove_extra_spaces = true;  // with Unigram, which is checked there
    } else {
      unsupported("pre-tokenizer", part);
    }
  }

  void read_split(const json& part) {
    const auto behavior = part.at("behavior").get<std::string>();
    const bool invert = part.value("invert", false);
    const json& pattern = part.at("pattern");
    if (pattern.contains("String")) {
      // Gemma's split at spaces has no effect: its normalizer replaces all spaces.
      if (pattern.at("String") == " " && spaces_are_marked_) return;
    } else if ((behavior == "Isolated" && !invert) || (behavior == "Removed" && invert)) {
      vocabulary_.splits.push_back(pattern.at("Regex").get<std::string>());
      return;
    }
    unsupported("pre-tokenizer", part);
  }

  void read_metaspace(const json& part) {
    if (part.at("replacement") != kSpace) unsupported("pre-tokenizer", part);
    spaces_are_marked_ = true;
    const bool prefix = part.value("add_prefix_space", true);
    const auto scheme = part.value("prepend_scheme", std::string(prefix ? "always" : "never"));
    vocabulary_.space_prefix = scheme == "always"  ? SpacePrefix::always
                               : scheme == "first" ? SpacePrefix::first
                                                   : SpacePrefix::never;
    vocabulary_.prefix_unless_space = true;
    if (part.value("split", true)) vocabulary_.splits.push_back("\u2581[^\u2581]*|[^\u2581]+");
  }

  void read_model(const json& model) {
    require(model.is_object(), "{}: 'model' is not an object", source_);
    // Old files leave the type out.
    const std::string type = model.contains("type")     ? model.at("type").get<std::string>()
                             : model.contains("merges") ? "BPE"
                                                        : "unnamed";
    if (type == "BPE") {
      read_bpe(model);
    } else if (type == "Unigram") {
      read_unigram(model);
    } else {
      fail(ErrorCode::unsupported,
           "{}: model type '{}' is not supported; supported are BPE and Unigram", source_,
           printable(type));
    }
  }

  void read_bpe(const json& model) {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto found = model.find(key);
      if (found != model.end() && !found->is_null() && *found != "") unsupported(key, *found);
    }
    require(byte_level_ != spaces_are_marked_, ErrorCode::unsupported,
            "{}: BPE is supported either with ByteLevel or with spaces replaced by U+2581",
            source_);
    vocabulary_.kind = byte_level_ ? Kind::byte_bpe : Kind::sentencepiece;
    if (byte_level_ && vocabulary_.splits.empty()) vocabulary_.splits = {R"([\s\S]+)"};
    vocabulary_.ignore_merges = model.value("ignore_merges", false);
    read_pieces(model.at("vocab"));
    read_merges(model.at("merges"));
    if (model.value("byte_fallback", false)) {
      for (std::size_t i = 0; i < vocabulary_.pieces.size(); ++i) {
        const std::string& piece = vocabulary_.pieces[i];
        const auto is_hex = [&](std::size_t at) {
          return std::string_view("0123456789ABCDEF").find(piece[at]) != std::string_view::npos;
        };
        if (piece.size() == 6 && piece.starts_with("<0x") && piece[5] == '>' && is_hex(3) &&
            is_hex(4)) {
          vocabulary_.types[i] = TokenType::byte;
        }
      }
    }
    const auto unknown = model.find("unk_token");
    if (unknown != model.end() && !unknown->is_null()) {
      const auto name = unknown->get<std::string>();
      const auto& pieces = vocabulary_.pieces;
      const auto found = std::find(pieces.begin(), pieces.end(), name);
      require(found != pieces.end(), "{}: the unknown token '{}' is not in the vocabulary", source_,
              printable(name));
      vocabulary_.unk = static_cast<Token>(found - pieces.begin());
    }
  }

  void read_pieces(const json& entries) {
    require(entries.is_object(), "{}: 'vocab' of a BPE model is not an object", source_);
    std::size_t size = 0;
    for (const auto& [piece, id] : entries.items()) {
      const auto value = static_cast<std::size_t>(token_id(id, source_, piece));
      // Ids may have gaps, but a huge one must not cost memory.
      require(value < 2 * entries.size() + 1024, "{}: '{}' has the id {}, far beyond the {} pieces",
              source_, printable(piece), value, entries.size());
      size = std::max<std::size_t>(size, value + 1);
    }
    vocabulary_.pieces.resize(size);
    vocabulary_.types.assign(size, TokenType::unused);
    for (const auto& [piece, id] : entries.items()) {
      const auto i = id.get<std::size_t>();
      require(vocabulary_.types[i] == TokenType::unused, "{}: '{}' and '{}' have the same id {}",
              source_, printable(vocabulary_.pieces[i]), printable(piece), i);
      vocabulary_.pieces[i] = piece;
      vocabulary_.types[i] = TokenType::normal;
    }
  }

  void read_merges(const json& merges) {
    for (const json& merge : merges) {
      if (merge.is_array()) {
        require(merge.size() == 2, "{}: merge {} is not of two pieces", source_,
                printable(merge.dump(-1, ' ', false, json::error_handler_t::replace)));
        vocabulary_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      } else {
        const auto text = merge.get<std::string>();
        const std::size_t space = text.find(' ');
        require(space != std::string::npos && space > 0 && space + 1 < text.size(),
                "{}: merge '{}' is not two pieces with a space between", source_, printable(text));
        vocabulary_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
      }
    }
  }

  void read_unigram(const json& model) {
    require(!byte_level_ && vocabulary_.space_prefix != SpacePrefix::first && !vocabulary_.nfc,
            ErrorCode::unsupported, "{}: Unigram is supported with Metaspace and Precompiled only",
            source_);
    const Token unknown = token_id(model.at("unk_id"), source_, "unk_id");
    for (const json& entry : model.at("vocab")) {
      const bool is_unknown = library_.pieces.size() == static_cast<std::size_t>(unknown);
      library_.pieces.push_back(entry.at(0).get<std::string>());
      library_.scores.push_back(entry.at(1).get<float>());
      library_.types.push_back(is_unknown ? TokenType::unknown : TokenType::normal);
    }
    library_.byte_fallback = model.value("byte_fallback", false);
    library_.add_space_prefix = vocabulary_.space_prefix != SpacePrefix::never;
    const json added = root_.value("added_tokens", json::array());
    for (const json& token : added) {
      const auto id = static_cast<std::size_t>(token_id(token.at("id"), source_, "added_tokens"));
      if (id < library_.types.size() && library_.types[id] == TokenType::normal &&
          token.value("special", false)) {
        library_.types[id] = TokenType::control;
      }
    }
    std::string serialized = serialize(library_);
    vocabulary_ = SentencePieceModel(serialized, source_).vocabulary();
    vocabulary_.sentencepiece_model = std::move(serialized);
  }

  void read_post_processor(const json& part, int depth) {
    const auto type = part.at("type").get<std::string>();
    if (type == "Sequence") {
      each(part, "processors", depth, [&](const json& p, int d) { read_post_processor(p, d); });
    } else if (type == "TemplateProcessing") {
      bool before = true;
      for (const json& item : part.at("single")) {
        if (item.contains("Sequence")) {
          before = false;
          continue;
        }
        const auto name = item.at("SpecialToken").at("id").get<std::string>();
        const json& ids = part.at("special_tokens").at(name).at("ids");
        bool& asked = before ? vocabulary_.add_bos : vocabulary_.add_eos;
        if (asked || ids.size() != 1) unsupported("post-processor", part);
        asked = true;
        (before ? vocabulary_.bos : vocabulary_.eos) = token_id(ids[0], source_, name);
      }
    } else if (type != "ByteLevel") {
      unsupported("post-processor", part);
    }
  }

  const json& root_;
  const std::string& source_;
  Vocabulary vocabulary_;
  SentencePieceParts library_;
  bool byte_level_ = false;
  bool spaces_are_marked_ = false;
};

}  // namespace

json parse_json(std::string_view text, const std::string& source) {
  json root = parse_json_text(text, source);
  require(root.is_object(), "{}: not a JSON object", source);
  return root;
}

void add_token(Vocabulary& vocabulary, Token id, const json& token) {
  const auto content = token.at("content").get<std::string>();
  const std::size_t size = vocabulary.pieces.size();
  require(id >= 0 && static_cast<std::size_t>(id) < 2 * size + 65536,
          "{}: the added token '{}' has the id {}, far beyond the {} pieces", vocabulary.source,
          printable(content), id, size);
  require(!token.value("single_word", false), ErrorCode::unsupported,
          "{}: the added token '{}' asks for 'single_word', "
          "which is not supported",
          vocabulary.source, printable(content));
  if (static_cast<std::size_t>(id) >= size) {
    vocabulary.pieces.resize(id + 1);
    vocabulary.types.resize(id + 1, TokenType::unused);
    if (!vocabulary.scores.empty()) vocabulary.scores.resize(id + 1);
  }
  vocabulary.pieces[id] = content;
  vocabulary.types[id] =
      token.value("special", false) ? TokenType::control : TokenType::user_defined;
  if (token.value("lstrip", false)) vocabulary.strip_left.push_back(id);
  if (token.value("rstrip", false)) vocabulary.strip_right.push_back(id);
}

Vocabulary read_tokenizer_json(const json& root, const std::string& source) {
  return Reader(root, source).read();
}

Vocabulary parse_tokenizer_json(std::string_view text, const std::string& source) {
  return read_tokenizer_json(parse_json(text, source), source);
}

}  // namespace ballast
