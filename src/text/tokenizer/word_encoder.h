// Byte-pair encoding of words, over bytes (GPT-2) or characters (SentencePiece).
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "text/tokenizer/merge_table.h"
#include "text/tokenizer/neighbours.h"
#include "text/tokenizer/piece_index.h"
#include "text/tokenizer/utf8.h"

namespace ballast {

class WordEncoder {
 public:
  static constexpr std::size_t kPart = std::size_t{1} << 16;

  /// Keeps views of the vocabulary's pieces and, for byte_bpe, of `texts`, the bytes of each piece.
  /// Both must outlive it.
  WordEncoder(const Vocabulary& vocabulary, const std::vector<std::string>& texts);

  /// Appends the ids of a word. One longer than `part` bytes is encoded in parts, cut where no
  /// merge can cross: the ids are the same, and merging takes some fifty times what it is given.
  /// `check`: is told the bytes of each part before, and may throw.
  void encode(std::string_view word, std::vector<Token>& out, std::size_t part = kPart,
              const std::function<void(std::size_t)>& check = {}) const;

  /// The first place behind `at` that no merge crosses; the word's size where there is none.
  std::size_t next_cut(std::string_view word, std::size_t at) const;

  /// True if no piece has U+2581 after another character, so that words may be cut there.
  bool spaces_begin_pieces() const { return spaces_begin_pieces_; }

 private:
  void read_pieces(const std::vector<std::string>& spellings);
  void read_merges();
  Utf8Char unit_at(std::string_view word, std::size_t at) const;
  std::vector<Symbol> split(std::string_view word) const;
  void encode_part(std::string_view word, std::vector<Token>& out) const;
  bool append_bytes(std::string_view bytes, std::vector<Token>& out) const;
  void append(std::string_view bytes, std::vector<Token>& out) const;

  const Vocabulary& vocabulary_;
  bool by_bytes_;
  bool spaces_begin_pieces_ = true;
  std::size_t longest_ = 0;
  Neighbours neighbours_;
  PieceIndex ids_;  ///< of what merges can produce
  MergeTable merges_;
  std::array<Token, 256> bytes_{};  ///< pieces of single bytes
};

}  // namespace ballast
