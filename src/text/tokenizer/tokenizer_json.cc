#include "text/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "base/base64.h"
#include "base/fail.h"
#include "base/json_reason.h"
#include "base/printable.h"
#include "formats/json.h"
#include "formats/json_text.h"
#include "text/tokenizer/check_sizes.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace ballast {
namespace {

using json = SortedJson;
using Kind = Vocabulary::Kind;
using SpacePrefix = Vocabulary::SpacePrefix;

constexpr const char* kSpace = "\u2581";
constexpr int kDeepest = 8;  // sequences within sequences

// An id as it may stand in a file: a whole number that a Token holds.
Token token_id(const json& id, const std::string& source, std::string_view name) {
  require(id.is_number_unsigned() &&
              id.get<std::uint64_t>() < std::uint64_t{std::numeric_limits<Token>::max()},
          ErrorCode::bad_file, "{}: {} is not the id of a token ('{}')", source,
          id.is_number() ? id.dump() : id.type_name(), printable(name));
  return static_cast<Token>(id.get<std::uint64_t>());
}

// The entries of a model, which are by far the most of a file: taken while it is parsed.
class Entries {
 public:
  explicit Entries(const std::string& source) : source_(source) {}

  // An entry of "vocab": a field `name` of an object (BPE) or an element of a list (Unigram).
  void add_piece(const std::string& name, const json& value) {
    check_pieces(pieces_.size() + 1, source_);
    if (!value.is_array()) {
      ids_.push_back(token_id(value, source_, name));
      pieces_.push_back(name);
      return;
    }
    try {
      pieces_.push_back(value.at(0).get<std::string>());
      scores_.push_back(value.at(1).get<float>());
    } catch (const json::exception& e) {
      fail("{}: in 'model': {}", source_, json_reason(e));
    }
  }

  // An entry of "merges".
  void add_merge(const json& merge) {
    const auto text = [&](const json& value) -> const std::string& {
      require(value.is_string(), "{}: in 'merges': {} is no text", source_, value.type_name());
      return value.get_ref<const std::string&>();
    };
    if (!merge.is_array()) return add_line(text(merge));
    require(merge.size() == 2, "{}: merge {} is not of two pieces", source_,
            printable(merge.dump(-1, ' ', false, json::error_handler_t::replace)));
    merges_.add(text(merge[0]), text(merge[1]));
  }

  // A line of merges.txt.
  void add_line(std::string_view text) {
    const std::size_t space = text.find(' ');
    require(space != std::string_view::npos && space > 0 && space + 1 < text.size(),
            "{}: merge '{}' is not two pieces with a space between", source_, printable(text));
    merges_.add(text.substr(0, space), text.substr(space + 1));
  }

  // Of BPE: pieces by id.
  void move_to(Vocabulary& vocabulary) {
    require(scores_.empty(), "{}: 'vocab' of a BPE model is not an object", source_);
    std::size_t size = 0;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const auto id = static_cast<std::size_t>(ids_[i]);
      // Ids may have gaps, but a huge one must not cost memory.
      require(id < 2 * ids_.size() + 1024, "{}: '{}' has the id {}, far beyond the {} pieces",
              source_, printable(pieces_[i]), id, ids_.size());
      size = std::max(size, id + 1);
    }
    vocabulary.pieces.resize(size);
    vocabulary.types.assign(size, TokenType::unused);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const Token id = ids_[i];
      require(vocabulary.types[id] == TokenType::unused, "{}: '{}' and '{}' have the same id {}",
              source_, printable(vocabulary.pieces[id]), printable(pieces_[i]), id);
      vocabulary.pieces[id] = std::move(pieces_[i]);
      vocabulary.types[id] = TokenType::normal;
    }
    vocabulary.merges = std::move(merges_);
    pieces_ = {};
  }

  // Of Unigram, in their order.
  void move_to(SentencePieceParts& parts, Token unknown) {
    require(ids_.empty(), "{}: 'vocab' of a Unigram model is not a list", source_);
    parts.types.assign(pieces_.size(), TokenType::normal);
    if (static_cast<std::size_t>(unknown) < pieces_.size()) {
      parts.types[unknown] = TokenType::unknown;
    }
    parts.pieces = std::move(pieces_);
    parts.scores = std::move(scores_);
  }

 private:
  const std::string& source_;
  std::vector<std::string> pieces_;
  std::vector<Token> ids_;     // of BPE, one a piece
  std::vector<float> scores_;  // of Unigram, one a piece
  Merges merges_;
};

// Collects the properties that the parts of a tokenizer.json define.
class Reader {
 public:
  Reader(const json& root, Entries entries, const std::string& source)
      : root_(root), entries_(std::move(entries)), source_(source) {
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
    in("decoder", [&](const json& part) { check_decoder(part, 0); });
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
      library_.character_map = decode_base64(part.at("precompiled_charsmap").get<std::string>());
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
    require(model.at("vocab").is_object(), "{}: 'vocab' of a BPE model is not an object", source_);
    require(model.at("merges").is_array(), "{}: 'merges' is not a list", source_);
    entries_.move_to(vocabulary_);
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

  void read_unigram(const json& model) {
    require(!byte_level_ && vocabulary_.space_prefix != SpacePrefix::first && !vocabulary_.nfc,
            ErrorCode::unsupported, "{}: Unigram is supported with Metaspace and Precompiled only",
            source_);
    const Token unknown = token_id(model.at("unk_id"), source_, "unk_id");
    require(model.at("vocab").is_array(), "{}: 'vocab' of a Unigram model is not a list", source_);
    entries_.move_to(library_, unknown);
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

  // Texts are decoded by the vocabulary's kind, so that a decoder may say that alone.
  void check_decoder(const json& part, int depth) {
    const auto type = part.at("type").get<std::string>();
    if (type == "Sequence") {
      return each(part, "decoders", depth, [&](const json& p, int d) { check_decoder(p, d); });
    }
    const bool marks = type == "Replace" && part.at("pattern") == json{{"String", kSpace}} &&
                       part.at("content") == " ";
    const bool prefix = type == "Strip" && part.at("content") == " " && part.at("start") == 1 &&
                        part.at("stop") == 0;
    if (!marks && !prefix && type != "ByteLevel" && type != "Metaspace" && type != "ByteFallback" &&
        type != "Fuse") {
      unsupported("decoder", part);
    }
  }

  const json& root_;
  Entries entries_;
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
  check_pieces(static_cast<std::size_t>(id) + 1, vocabulary.source);
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

Vocabulary parse_tokenizer_json(std::string_view text, const std::string& source) {
  Entries entries(source);
  const json root =
      parse_json_parts(text, source, [&](std::span<const std::string> path, const json& value) {
        if (path.size() != 3 || path[0] != "model") return false;
        if (path[1] == "vocab") {
          entries.add_piece(path[2], value);
        } else if (path[1] == "merges") {
          entries.add_merge(value);
        } else {
          return false;
        }
        return true;
      });
  require(root.is_object(), "{}: not a JSON object", source);
  return Reader(root, std::move(entries), source).read();
}

Vocabulary parse_vocab_and_merges(std::string_view vocab, std::string_view merges,
                                  const std::string& source) {
  Entries entries(source);
  const json root =
      parse_json_parts(vocab, source, [&](std::span<const std::string> path, const json& value) {
        if (path.size() != 1) return false;
        entries.add_piece(path[0], value);
        return true;
      });
  for (bool first = true; !merges.empty();) {
    std::string_view line = merges.substr(0, merges.find('\n'));
    merges.remove_prefix(std::min(line.size() + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !(first && line.starts_with("#version"))) {
      entries.add_line(line);
      first = false;
    }
  }
  const json model = {{"type", "BPE"}, {"vocab", root}, {"merges", json::array()}};
  const json pre = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return Reader(json{{"model", model}, {"pre_tokenizer", pre}}, std::move(entries), source).read();
}

}  // namespace ballast
