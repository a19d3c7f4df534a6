// What a forward pass moves on.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/cache.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// Consecutive tokens of one text in a pass.
struct Run {
  std::span<const Token> tokens;
  std::size_t first = 0;               ///< position of the first token, which the others follow
  std::span<const Position> places{};  ///< positions of all tokens, where they are no neighbours
  const CacheShape* shape = nullptr;   ///< which rotates keys and queries; null: the cache does
  RecurrentStates* states = nullptr;   ///< null: all layers attend
  bool keeps_states = true;            ///< whether the tokens stay in the states

  std::size_t position(std::size_t token) const {
    return places.empty() ? first + token : static_cast<std::size_t>(places[token]);
  }
};

}  // namespace ballast
