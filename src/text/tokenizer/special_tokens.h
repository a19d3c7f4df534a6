// Finds special tokens in text: the leftmost, then the longest.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace ballast {

class SpecialTokens {
 public:
  /// Throws Error if a special token is too long.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  /// A stretch of text (token == kNoToken) or one token.
  struct Part {
    std::string_view text;
    Token token = kNoToken;
  };

  /// Calls `part` for each stretch and token in order; stretches are not empty. Finds user-defined
  /// tokens always, control tokens and the unknown token if `control`.
  void split(std::string_view text, bool control, const std::function<void(Part)>& part) const;

 private:
  struct Node {
    Token token = kNoToken;
    bool control = false;
    bool strip_left = false;
    bool strip_right = false;
  };
  void add(std::string_view piece, const Node& node);
  std::uint32_t child(std::uint32_t node, char byte) const;
  /// The node of the longest token at `begin` and its length; length 0 if there is none.
  std::pair<const Node*, std::size_t> find(std::string_view text, std::size_t begin,
                                           bool control) const;

  std::vector<Node> nodes_;                                    ///< a trie; node 0 is the root
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  ///< by node * 256 + byte
};

}  // namespace ballast
