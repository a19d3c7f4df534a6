#include "text/tokenizer/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>

#include "base/fail.h"
#include "text/tokenizer/character_map.h"
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

std::string one_line(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

}  // namespace

SentencePieceModel::SentencePieceModel(const std::string& serialized, const std::string& source)
    : source_(source), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  check_character_maps(serialized, source);
  std::string problem;
  try {
    const auto status = processor_->LoadFromSerializedProto(serialized);
    if (!status.ok()) problem = status.ToString();
  } catch (const std::exception& error) {  // of its tries: an empty piece, for one
    problem = error.what();
  }
  require(problem.empty(), ErrorCode::bad_file, "{}: not a SentencePiece model ({})", source,
          one_line(problem));
  cuts_ = find_cuts(serialized);
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

SentencePieceModel::Cuts SentencePieceModel::find_cuts(std::string_view serialized) const {
  // Every space of a normalised text then begins a piece that is known, so that no run of unknown
  // ones, which the library joins, crosses it.
  const int space = processor_->PieceToId(kSpace);
  if (processor_->IdToPiece(space) != kSpace || processor_->IsUnknown(space) ||
      processor_->IsControl(space) || processor_->IsUnused(space))
    return Cuts::none;
  for (int i = 0; i < processor_->GetPieceSize(); ++i) {
    std::string_view piece = processor_->IdToPiece(i);
    while (piece.starts_with(kSpace)) piece.remove_prefix(kSpace.size());
    if (piece.find(kSpace) != std::string_view::npos || piece.find(' ') != std::string_view::npos)
      return Cuts::none;
  }
  // ModelProto: trainer_spec = 2, normalizer_spec = 3. What a file leaves out has its default.
  std::uint64_t kind = 1, prefix = 1, remove_extra = 1, escape = 1, suffix = 0;
  bool apart = true;
  read_fields(serialized, [&](const WireField& spec) {
    if (spec.number != 2 && spec.number != 3) return;
    read_fields(spec.bytes, [&](const WireField& field) {
      if (spec.number == 2 && field.number == 3) kind = field.integer.value_or(0);
      if (spec.number == 2 && field.number == 24) suffix = field.integer.value_or(1);
      if (spec.number == 3 && field.number == 2) apart &= keeps_words_apart(field.bytes);
      if (spec.number == 3 && field.number == 3) prefix = field.integer.value_or(0);
      if (spec.number == 3 && field.number == 4) remove_extra = field.integer.value_or(0);
      if (spec.number == 3 && field.number == 5) escape = field.integer.value_or(0);
    });
  });
  const bool by_pieces = kind == 1 || kind == 2;  // unigram or byte-pair encoding
  if (!apart || !by_pieces || suffix != 0 || escape == 0) return Cuts::none;
  if (prefix != 0) return Cuts::drop_space;
  return remove_extra != 0 ? Cuts::none : Cuts::keep_space;
}

void SentencePieceModel::encode(std::string_view text, std::vector<Token>& out,
                                std::size_t part) const {
  std::vector<int> ids;
  while (true) {
    std::size_t end = cuts_ == Cuts::none ? text.size() : std::max<std::size_t>(part, 1);
    while (end + 1 < text.size() &&
           !(text[end] == ' ' && is_word(text[end - 1]) && is_word(text[end + 1])))
      ++end;
    if (end + 1 >= text.size()) end = text.size();
    const auto status = processor_->Encode(text.substr(0, end), &ids);
    require(status.ok(), ErrorCode::bad_file, "{}: {}", source_, one_line(status.ToString()));
    out.insert(out.end(), ids.begin(), ids.end());
    if (end == text.size()) return;
    text.remove_prefix(cuts_ == Cuts::drop_space ? end + 1 : end);
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
