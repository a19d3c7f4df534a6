// Whether a tokenizer belongs to a model.
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

}  // namespace ballast
