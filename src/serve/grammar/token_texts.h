// The texts of a vocabulary's tokens, for masks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "serve/grammar/grammar.h"

namespace ballast::serve {

class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);

  const std::string& operator[](std::size_t token) const { return texts_[token]; }
  /// Sets the logits of tokens that `reader` does not take to minus infinity. Returns how many
  /// are left. Tokens that end a text are taken where it may end. Throws as GrammarStates::next().
  std::size_t mask(const GrammarReader& reader, std::span<float> logits) const;

 private:
  std::vector<bool> taken(GrammarStates& states, GrammarStates::State state) const;

  std::vector<std::string> texts_;     ///< empty: a token without text
  std::vector<std::size_t> ends_;      ///< tokens that end a text
  std::vector<std::uint32_t> sorted_;  ///< tokens in the order of their texts
  std::vector<std::uint32_t> common_;  ///< bytes that a text begins with like the one before
  std::uint32_t longest_ = 0;          ///< text, in bytes
};

}  // namespace ballast::serve
