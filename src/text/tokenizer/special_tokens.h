// Finds special tokens in text: the leftmost, then the longest.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace ballast {

/// An automaton of Aho and Corasick (1975) of the tokens read backwards, which runs from the end of
/// a text to its beginning: what it has found at a byte is the longest token that begins there. The
/// time for a text is in proportion to its bytes, whatever the tokens are.
class SpecialTokens {
 public:
  /// Throws Error if the automaton would have over kMostNodes nodes of 17 bytes. It has at most one
  /// for each byte of a special token, fewer where tokens end alike.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  static constexpr std::size_t kMostNodes = std::size_t{1} << 22;

  /// A stretch of text (token == kNoToken) or one token.
  struct Part {
    std::string_view text;
    Token token = kNoToken;
  };

  /// Calls `part` for each stretch and token in order; stretches are not empty. Finds user-defined
  /// tokens always, control tokens and the unknown token if `control`.
  void split(std::string_view text, bool control, const std::function<void(Part)>& part) const;

 private:
  using Index = std::uint32_t;  ///< of tokens_, or of a node
  static constexpr Index kNone = static_cast<Index>(-1);

  struct Special {
    Token token = kNoToken;
    std::uint32_t length = 0;
    bool control = false;
    bool strip_left = false;
    bool strip_right = false;
  };

  void build(const std::vector<std::string>& pieces, std::string_view source);
  void link();
  Index child(Index node, unsigned char byte) const;
  Index next(Index node, unsigned char byte) const;
  /// The longest token that begins at each byte from `begin` on, of as many as `found` has.
  void find(std::string_view text, std::size_t begin, bool control,
            std::vector<Index>& found) const;

  std::vector<Special> tokens_;
  std::size_t longest_ = 0;  ///< bytes
  bool has_user_defined_ = false;
  std::array<Index, 256> roots_{};  ///< children of node 0, which is none of any node
  // Of each node; those of one depth follow each other, and so do the children of one node.
  std::vector<unsigned char> bytes_;  ///< that lead to it; ascending among children
  std::vector<Index> children_;       ///< the first; those of the next node begin where these end
  std::vector<Index> shorter_;        ///< where the longest proper suffix of its way ends
  std::vector<Index> any_;            ///< the longest token that its way ends with, or kNone
  std::vector<Index> user_defined_;   ///< the same of user-defined tokens
};

}  // namespace ballast
