#include "text/tokenizer/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <optional>

#include "base/fail.h"
#include "text/tokenizer/check_sizes.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer/wire_format.h"

namespace ballast {
namespace {

constexpr std::string_view kSpace = "\u2581";

// Protocol buffers' wire format, as far as a ModelProto needs it (developers.google.com,
// protocol-buffers, encoding; field numbers from sentencepiece_model.proto).
class Message {
 public:
  void add_integer(unsigned field, std::uint64_t value) {
    append_integer(field << 3);
    append_integer(value);
  }
  void add_bytes(unsigned field, std::string_view value) {
    append_integer(field << 3 | 2);
    append_integer(value.size());
    bytes_ += value;
  }
  void add_float(unsigned field, float value) {
    append_integer(field << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void append_integer(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

/// The character that ends before `at`; empty where that is none of UTF-8.
std::string_view character_before(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && at - begin < 4) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xc0) != 0x80) break;
  }
  if (begin == at) return {};
  const Utf8Char character = next_utf8(text.substr(0, at), begin);
  const bool whole = character.state == Utf8Char::State::valid && begin + character.length == at;
  return whole ? text.substr(begin, character.length) : std::string_view();
}

/// The character at `at`; empty where that is none of UTF-8.
std::string_view character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const Utf8Char character = next_utf8(text, at);
  return character.state == Utf8Char::State::valid ? text.substr(at, character.length)
                                                   : std::string_view();
}

// Before the library sees them.
void check_model_pieces(std::string_view serialized, const std::string& source) {
  // ModelProto: pieces = 1; SentencePiece: piece = 1.
  std::size_t pieces = 0;
  bool whole = true;
  whole &= read_fields(serialized, [&](const WireField& entry) {
    if (entry.number != 1) return;
    check_pieces(pieces + 1, source);
    whole &= read_fields(entry.bytes, [&](const WireField& field) {
      if (field.number == 1) check_piece(field.bytes, pieces, kLongestScoredPiece, source);
    });
    ++pieces;
  });
  require(whole, ErrorCode::bad_file, "{}: not a SentencePiece model (no protocol buffer)", source);
}

// The model without texts that test it, if it has any: the library encodes each when it loads,
// however long, which takes 240 times its size, and writes one that fails to stderr as it is.
std::optional<std::string> without_self_test(std::string_view serialized) {
  constexpr std::uint64_t kSelfTest = 4;  // of ModelProto
  std::optional<std::string> out;
  std::size_t copied = 0;
  read_fields(serialized, [&](const WireField& field) {
    if (field.number != kSelfTest) return;
    const auto begin = static_cast<std::size_t>(field.whole.data() - serialized.data());
    if (!out) out.emplace();
    *out += serialized.substr(copied, begin - copied);
    copied = begin + field.whole.size();
  });
  if (out) *out += serialized.substr(copied);
  return out;
}

std::string one_line(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

}  // namespace

SentencePieceModel::SentencePieceModel(const std::string& serialized, const std::string& source)
    : source_(source), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  check_character_maps(serialized, source);
  check_model_pieces(serialized, source);
  std::string problem;
  try {
    const std::optional<std::string> untested = without_self_test(serialized);
    const auto status = processor_->LoadFromSerializedProto(untested ? *untested : serialized);
    if (!status.ok()) problem = status.ToString();
  } catch (const std::exception& error) {  // of its tries: an empty piece, for one
    problem = error.what();
  }
  require(problem.empty(), ErrorCode::bad_file, "{}: not a SentencePiece model ({})", source,
          one_line(problem));
  find_cuts(serialized);
}

SentencePieceModel::~SentencePieceModel() = default;
SentencePieceModel::SentencePieceModel(SentencePieceModel&&) noexcept = default;

Vocabulary SentencePieceModel::vocabulary() const {
  Vocabulary vocabulary;
  vocabulary.source = source_;
  vocabulary.kind = Vocabulary::Kind::library;
  for (int i = 0; i < processor_->GetPieceSize(); ++i) {
    vocabulary.pieces.push_back(processor_->IdToPiece(i));
    vocabulary.scores.push_back(processor_->GetScore(i));
    vocabulary.types.push_back(processor_->IsUnknown(i)   ? TokenType::unknown
                               : processor_->IsControl(i) ? TokenType::control
                               : processor_->IsByte(i)    ? TokenType::byte
                               : processor_->IsUnused(i)  ? TokenType::unused
                                                          : TokenType::normal);
  }
  vocabulary.bos = processor_->bos_id();
  vocabulary.eos = processor_->eos_id();
  vocabulary.unk = processor_->unk_id();
  vocabulary.pad = processor_->pad_id();
  // Encoding one letter shows whether the library adds a leading space.
  std::vector<std::string> pieces;
  const auto status = processor_->Encode("a", &pieces);
  require(status.ok(), ErrorCode::bad_file, "{}: {}", source_, one_line(status.ToString()));
  if (!pieces.empty() && pieces[0].starts_with("\u2581")) {
    vocabulary.space_prefix = Vocabulary::SpacePrefix::always;
  }
  return vocabulary;
}

void SentencePieceModel::find_cuts(std::string_view serialized) {
  // ModelProto: trainer_spec = 2, normalizer_spec = 3. What a file leaves out has its default.
  std::uint64_t kind = 1, prefix = 1, remove_extra = 1, escape = 1, suffix = 0, bytes = 0;
  bool apart = true;
  rules_ = std::make_unique<RuleBytes>();
  read_fields(serialized, [&](const WireField& spec) {
    if (spec.number != 2 && spec.number != 3) return;
    read_fields(spec.bytes, [&](const WireField& field) {
      if (spec.number == 2 && field.number == 3) kind = field.integer.value_or(0);
      if (spec.number == 2 && field.number == 24) suffix = field.integer.value_or(1);
      if (spec.number == 2 && field.number == 35) bytes = field.integer.value_or(0);
      if (spec.number == 3 && field.number == 2) {
        apart &= keeps_words_apart(field.bytes);
        add_rule_bytes(field.bytes, *rules_);
      }
      if (spec.number == 3 && field.number == 3) prefix = field.integer.value_or(0);
      if (spec.number == 3 && field.number == 4) remove_extra = field.integer.value_or(0);
      if (spec.number == 3 && field.number == 5) escape = field.integer.value_or(0);
    });
  });
  const bool by_pieces = kind == 1 || kind == 2;  // unigram or byte-pair encoding
  if (!by_pieces || suffix != 0 || escape == 0) return;
  joins_unknown_ = bytes == 0;
  if (apart) words_ = find_words(prefix != 0, remove_extra != 0);
  find_neighbours();
}

SentencePieceModel::Words SentencePieceModel::find_words(bool adds_space,
                                                         bool removes_extra_spaces) const {
  // Every space of a normalised text then begins a piece that is known, so that no run of unknown
  // ones, which the library joins, crosses it.
  const int space = processor_->PieceToId(kSpace);
  if (processor_->IdToPiece(space) != kSpace || processor_->IsUnknown(space) ||
      processor_->IsControl(space) || processor_->IsUnused(space))
    return Words::whole;
  for (int i = 0; i < processor_->GetPieceSize(); ++i) {
    std::string_view piece = processor_->IdToPiece(i);
    while (piece.starts_with(kSpace)) piece.remove_prefix(kSpace.size());
    if (piece.find(kSpace) != std::string_view::npos || piece.find(' ') != std::string_view::npos)
      return Words::whole;
  }
  if (adds_space) return Words::without_space;
  return removes_extra_spaces ? Words::whole : Words::with_space;
}

void SentencePieceModel::find_neighbours() {
  for (int i = 0; i < processor_->GetPieceSize(); ++i) {
    const std::string_view piece = processor_->IdToPiece(i);
    std::optional<char32_t> before;
    for (std::size_t at = 0; at < piece.size();) {
      const Utf8Char character = next_utf8(piece, at);
      if (character.state != Utf8Char::State::valid) return;
      if (before) neighbours_.add(*before, character.code);
      before = character.code;
      at += character.length;
    }
  }
  neighbours_.finish();
  characters_ = true;
}

/// Whether normalisation leaves the character alone wherever it stands.
bool SentencePieceModel::is_plain(std::string_view character) const {
  return !character.empty() && character != " " && character != kSpace && character[0] != '\0' &&
         !rules_->may_hold(character);
}

/// Whether a space stands at `at` between two words.
bool SentencePieceModel::is_between_words(std::string_view text, std::size_t at) const {
  if (words_ == Words::whole || at == 0 || at + 1 >= text.size() || text[at] != ' ') return false;
  return (is_word(text[at - 1]) || is_plain(character_before(text, at))) &&
         (is_word(text[at + 1]) || is_plain(character_at(text, at + 1)));
}

/// Whether a character ends and another begins at `at` that no piece holds in a row. Where the
/// library joins unknown ones, the second is a piece of its own, so that no run of them crosses.
bool SentencePieceModel::is_between_characters(std::string_view text, std::size_t at) const {
  if (!characters_ || at >= text.size()) return false;
  const std::string_view before = character_before(text, at), after = character_at(text, at);
  if (!is_plain(before) || !is_plain(after)) return false;
  if (neighbours_.contains(next_utf8(before, 0).code, next_utf8(after, 0).code)) return false;
  if (!joins_unknown_) return true;
  const int id = processor_->PieceToId(after);
  return processor_->IdToPiece(id) == after && !processor_->IsUnknown(id) &&
         !processor_->IsControl(id) && !processor_->IsUnused(id);
}

std::size_t SentencePieceModel::next_cut(std::string_view text, std::size_t at) const {
  if (words_ == Words::whole && !characters_) return text.size();
  while (at < text.size() && !is_between_words(text, at) && !is_between_characters(text, at)) ++at;
  return std::min(at, text.size());
}

void SentencePieceModel::encode(std::string_view text, std::vector<Token>& out, std::size_t part,
                                const std::function<void()>& after_part) const {
  std::vector<int> ids, again;
  const auto encode_part = [&](std::string_view piece, std::vector<int>& found) {
    const auto status = processor_->Encode(piece, &found);
    require(status.ok(), ErrorCode::bad_file, "{}: {}", source_, one_line(status.ToString()));
  };
  // A part behind a cut between characters begins with the character before it, to stand where the
  // library adds a space; its ids are left out.
  std::size_t begin = 0, repeated = 0;
  const std::size_t before = out.size();
  while (true) {
    const std::size_t end = next_cut(text, begin + std::max<std::size_t>(part, 1));
    again.clear();
    if (repeated > 0) encode_part(text.substr(begin - repeated, repeated), again);
    encode_part(text.substr(begin - repeated, end - begin + repeated), ids);
    if (std::ranges::mismatch(again, ids).in1 != again.end()) {  // scores that are no numbers, say
      out.resize(before);
      encode_part(text, ids);
      out.insert(out.end(), ids.begin(), ids.end());
      return;
    }
    out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(again.size()), ids.end());
    after_part();
    if (end == text.size()) return;
    const bool at_space = is_between_words(text, end);
    repeated = at_space ? 0 : character_before(text, end).size();
    begin = at_space && words_ == Words::without_space ? end + 1 : end;
  }
}

std::string serialize(const SentencePieceParts& parts) {
  require(parts.scores.size() == parts.pieces.size() && parts.types.size() == parts.pieces.size(),
          ErrorCode::bad_file, "serialize: {} pieces, {} scores, {} types; expected as many",
          parts.pieces.size(), parts.scores.size(), parts.types.size());
  Message model;
  for (std::size_t i = 0; i < parts.pieces.size(); ++i) {
    Message piece;
    piece.add_bytes(1, parts.pieces[i]);
    piece.add_float(2, parts.scores[i]);
    piece.add_integer(3, static_cast<std::uint64_t>(parts.types[i]));
    model.add_bytes(1, piece.bytes());
  }
  Message trainer;
  trainer.add_integer(3, parts.unigram ? 1 : 2);
  trainer.add_integer(35, parts.byte_fallback);
  // The library finds these pieces by name and rejects other ids.
  model.add_bytes(2, trainer.bytes());
  Message normalizer;
  normalizer.add_bytes(1, "ballast");
  normalizer.add_bytes(2, parts.character_map);
  normalizer.add_integer(3, parts.add_space_prefix);
  normalizer.add_integer(4, parts.remove_extra_spaces);
  normalizer.add_integer(5, 1);
  model.add_bytes(3, normalizer.bytes());
  return model.bytes();
}

}  // namespace ballast
