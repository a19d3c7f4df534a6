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

}  // namespace ballast
