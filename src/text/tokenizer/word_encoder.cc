#include "text/tokenizer/word_encoder.h"

#include <charconv>
#include <optional>

#include "base/fail.h"
#include "base/printable.h"
#include "text/tokenizer/byte_alphabet.h"

namespace ballast {
namespace {

constexpr std::string_view kSpace = "\u2581";

// Pieces that merges can produce. A special token such as <s> never encodes its own spelling.
bool is_mergeable(TokenType type) {
  return type == TokenType::normal || type == TokenType::user_defined;
}

// A piece such as "of▁the".
bool has_inner_space(std::string_view piece) {
  std::size_t i = 0;
  while (piece.substr(i, kSpace.size()) == kSpace) i += kSpace.size();
  return piece.find(kSpace, i) != std::string_view::npos;
}

PieceIndex index_mergeable(const std::vector<std::string>& spellings,
                           const std::vector<TokenType>& types) {
  return {spellings, [&](std::size_t i) { return is_mergeable(types[i]); }};
}

}  // namespace

WordEncoder::WordEncoder(const Vocabulary& vocabulary, const std::vector<std::string>& texts)
    : vocabulary_(vocabulary),
      by_bytes_(vocabulary.kind == Vocabulary::Kind::byte_bpe),
      ids_(index_mergeable(by_bytes_ ? texts : vocabulary.pieces, vocabulary.types)),
      merges_(vocabulary.merges.size()) {
  bytes_.fill(kNoToken);
  read_pieces(by_bytes_ ? texts : vocabulary.pieces);
  read_merges();
}

void WordEncoder::read_pieces(const std::vector<std::string>& spellings) {
  for (std::size_t i = 0; i < spellings.size(); ++i) {
    const TokenType type = vocabulary_.types[i];
    const std::string_view spelling = spellings[i];
    const auto id = static_cast<Token>(i);
    if (type == TokenType::byte) {
      unsigned byte = 256;
      if (spelling.size() == 6 && spelling.starts_with("<0x") && spelling[5] == '>') {
        std::from_chars(spelling.data() + 3, spelling.data() + 5, byte, 16);
      }
      require(byte < 256, ErrorCode::bad_file,
              "{}: piece {} ('{}') is of type byte but not of the form <0x0A>", vocabulary_.source,
              i, printable(spelling));
      bytes_[byte] = id;
    }
    if (!is_mergeable(type) || spelling.empty()) continue;
    longest_ = std::max(longest_, spelling.size());
    if (by_bytes_ && spelling.size() == 1) bytes_[static_cast<unsigned char>(spelling[0])] = id;
    if (!by_bytes_ && has_inner_space(spelling)) spaces_begin_pieces_ = false;
    for (std::size_t at = 0, before = 0; at < spelling.size();) {
      const Utf8Char unit = unit_at(spelling, at);
      if (at > 0) neighbours_.add(static_cast<std::uint32_t>(before), unit.code);
      before = unit.code;
      at += unit.length;
    }
  }
  neighbours_.finish();
}

void WordEncoder::read_merges() {
  const auto& merges = vocabulary_.merges;
  if (!by_bytes_ && merges.empty()) {
    require(vocabulary_.scores.size() == vocabulary_.pieces.size(), ErrorCode::bad_file,
            "{}: {} scores for {} pieces; expected one each, or merges", vocabulary_.source,
            vocabulary_.scores.size(), vocabulary_.pieces.size());
  }
  // Merges are spelled like pieces, so byte-level BPE looks up ids by that spelling.
  std::optional<PieceIndex> written;
  if (by_bytes_) written.emplace(index_mergeable(vocabulary_.pieces, vocabulary_.types));
  const PieceIndex& ids = by_bytes_ ? *written : ids_;
  std::string both;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto pieces = merges[rank];
    const auto id = [&](std::string_view piece) {
      const Token found = ids.find(piece);
      require(found != kNoToken, ErrorCode::bad_file,
              "{}: merge {} ('{}' '{}') needs the piece '{}', which is missing", vocabulary_.source,
              rank, printable(pieces.first), printable(pieces.second), printable(piece));
      return found;
    };
    both.assign(pieces.first);
    both.append(pieces.second);
    const Token joined = id(both);
    merges_.add(id(pieces.first), id(pieces.second), joined);
  }
}

std::vector<Symbol> WordEncoder::split(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = unit_at(word, i).length;
    Token id = kNoToken;
    if (by_bytes_) {
      id = bytes_[static_cast<unsigned char>(word[i])];
    } else {
      id = ids_.find(word.substr(i, length));
    }
    symbols.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(length), id});
    i += length;
  }
  return symbols;
}

// What merging begins with: a byte, or a character, or a damaged part of one.
Utf8Char WordEncoder::unit_at(std::string_view word, std::size_t at) const {
  if (!by_bytes_) return next_utf8(word, at);
  return {static_cast<unsigned char>(word[at]), 1, Utf8Char::State::valid};
}

std::size_t WordEncoder::next_cut(std::string_view word, std::size_t at) const {
  // Begins at a unit: no character is longer than four bytes.
  while (!by_bytes_ && at < word.size() && (static_cast<unsigned char>(word[at]) & 0xc0) == 0x80) {
    ++at;
  }
  while (at < word.size()) {
    const Utf8Char left = unit_at(word, at);
    at += left.length;
    if (at == word.size()) break;
    const Utf8Char right = unit_at(word, at);
    const bool valid =
        left.state == Utf8Char::State::valid && right.state == Utf8Char::State::valid;
    if (valid && !neighbours_.contains(left.code, right.code)) break;
  }
  return at;
}

void WordEncoder::encode(std::string_view word, std::vector<Token>& out, std::size_t part,
                         const std::function<void(std::size_t)>& check) const {
  if (vocabulary_.ignore_merges) {
    if (const Token whole = ids_.find(word); whole != kNoToken) {
      out.push_back(whole);
      return;
    }
  }
  while (word.size() > part) {
    const std::size_t cut = next_cut(word, part);
    if (check) check(cut);
    encode_part(word.substr(0, cut), out);
    word.remove_prefix(cut);
  }
  encode_part(word, out);
}

void WordEncoder::encode_part(std::string_view word, std::vector<Token>& out) const {
  std::vector<Symbol> symbols = split(word);
  if (by_bytes_ || !merges_.empty()) {
    merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) {
      return merges_.find(left.id, right.id);
    });
  } else {
    merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
      const std::size_t length = std::size_t{left.length} + right.length;
      if (length > longest_) return std::nullopt;
      const Token found = ids_.find(word.substr(left.begin, length));
      if (found == kNoToken) return std::nullopt;
      return Merge{-static_cast<double>(vocabulary_.scores[found]), found};
    });
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.length == 0) continue;
    if (symbol.id != kNoToken) {
      out.push_back(symbol.id);
    } else {
      append(word.substr(symbol.begin, symbol.length), out);
    }
  }
}

bool WordEncoder::append_bytes(std::string_view bytes, std::vector<Token>& out) const {
  const std::size_t mark = out.size();
  for (char byte : bytes) {
    const Token token = bytes_[static_cast<unsigned char>(byte)];
    if (token == kNoToken) {
      out.resize(mark);
      return false;
    }
    out.push_back(token);
  }
  return true;
}

// A character or byte without a piece: some byte-level vocabularies omit bytes that UTF-8 never
// uses.
void WordEncoder::append(std::string_view bytes, std::vector<Token>& out) const {
  if (append_bytes(bytes, out)) return;
  if (vocabulary_.unk != kNoToken) {
    // SentencePiece writes a run of what it does not know as one token.
    if (out.empty() || out.back() != vocabulary_.unk) out.push_back(vocabulary_.unk);
    return;
  }
  require(append_bytes(kReplacementUtf8, out), ErrorCode::bad_file,
          "{}: no piece writes '{}' and there is no unknown token", vocabulary_.source,
          printable(bytes));
}

}  // namespace ballast
