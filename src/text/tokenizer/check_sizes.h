// What sizes of a vocabulary are refused.
#pragma once

#include <cstddef>
#include <string_view>

#include "ballast/engine/tokenizer.h"
#include "base/fail.h"

namespace ballast {

/// Throws Error if the embedding of the model at `path` has fewer rows than the tokenizer tokens.
inline void check_rows(const Tokenizer& tokenizer, std::size_t rows, std::string_view path) {
  require(tokenizer.size() <= rows, ErrorCode::bad_file,
          "{}: the vocabulary has {} tokens, but the embedding has {} rows; take the tokenizer and "
          "the weights of one model",
          path, tokenizer.size(), rows);
}

/// Throws Error if a vocabulary has too many pieces: each takes up to 350 bytes.
inline void check_pieces(std::size_t pieces, std::string_view source) {
  require(pieces <= kMostPieces, ErrorCode::bad_file,
          "{}: a vocabulary of over {} pieces; larger ones are not read", source, kMostPieces);
}

/// Throws Error if a piece has over `most` bytes: kLongestPiece, or kLongestScoredPiece where work
/// at each byte of a text grows with the longest piece, as with scores, or where SentencePiece
/// recurses once a byte: 195 KB overflow its stack. The longest pieces of GPT-2 and DeepSeek have
/// 256 bytes (128 of text), of Llama 2 48, and of the shipped model, which holds whole sentences,
/// 273; 600 spaces are 1,200.
inline void check_piece(std::string_view piece, std::size_t id, std::size_t most,
                        std::string_view source) {
  require(piece.size() <= most, ErrorCode::bad_file,
          "{}: piece {} has {} bytes; pieces of over {} are not read", source, id, piece.size(),
          most);
}

}  // namespace ballast
