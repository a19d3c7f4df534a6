// Byte-pair encoding of words, over bytes (GPT-2) or characters (SentencePiece).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "text/tokenizer/merge.h"

namespace ballast {

class WordEncoder {
 public:
  /// Keeps views of the vocabulary's pieces and, for byte_bpe, of `texts`, the bytes of each piece.
  /// Both must outlive it.
  WordEncoder(const Vocabulary& vocabulary, const std::vector<std::string>& texts);

  /// Appends the ids of a word.
  void encode(std::string_view word, std::vector<Token>& out) const;

  /// True if no piece has U+2581 after another character, so that words may be cut there.
  bool spaces_begin_pieces() const { return spaces_begin_pieces_; }

 private:
  void read_pieces(const std::vector<std::string>& spellings);
  void read_merges();
  std::vector<Symbol> split(std::string_view word) const;
  bool append_bytes(std::string_view bytes, std::vector<Token>& out) const;
  void append(std::string_view bytes, std::vector<Token>& out) const;

  const Vocabulary& vocabulary_;
  bool by_bytes_;
  bool spaces_begin_pieces_ = true;
  std::size_t longest_ = 0;
  std::unordered_map<std::string_view, Token> ids_;
  std::unordered_map<std::uint64_t, Merge> merges_;  ///< by left id * 2^32 + right id
  std::array<Token, 256> bytes_{};                   ///< pieces of single bytes
};

}  // namespace ballast
