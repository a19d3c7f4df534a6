// Prompt lookup: tokens that may come next are copied from where the last ones stood before, and
// verified together in one pass. Answers about a text often repeat parts of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace ballast {

/// Finds where the last tokens of a text stood before.
class PromptLookup {
 public:
  /// Appends to the text.
  void add(std::span<const Token> tokens);
  std::size_t size() const { return text_.size(); }
  /// What followed the last kLongest tokens, or the fewer down to kShortest, where they stood last;
  /// at most `most` tokens, none if they never stood before. Valid until add().
  std::span<const Token> next(std::size_t most) const;

 private:
  static constexpr std::size_t kShortest = 2, kLongest = 4;

  /// Of the `length` tokens that end before `end`. Two runs may share a hash: next() compares.
  std::uint64_t hash(std::size_t end, std::size_t length) const;

  std::vector<Token> text_;
  /// For each length: where such a run of tokens ended last, but for the end of the text.
  std::array<std::unordered_map<std::uint64_t, std::size_t>, kLongest - kShortest + 1> ends_;
};

/// Decides how many tokens are drafted, so that drafts take no time where few are accepted or where
/// a pass over several tokens takes as long as several passes.
class DraftLength {
 public:
  static constexpr std::size_t kMost = 15;

  /// How many tokens to draft now; 0: none.
  std::size_t next();
  /// A pass without a draft took so long, in seconds.
  void plain(double seconds);
  /// A pass over a token and `drafted` more took so long; `accepted` of them were right.
  void passed(std::size_t drafted, std::size_t accepted, double seconds);

 private:
  std::size_t length_ = 3;
  double plain_ = 0;                 ///< seconds of a pass without a draft; 0: none was seen
  double tokens_ = 0, seconds_ = 0;  ///< of passes with drafts, the last ones most
  std::size_t pause_ = 0;            ///< tokens to come without drafts
  std::size_t next_pause_ = kPause;
  static constexpr std::size_t kPause = 16, kLongestPause = 512;
};

}  // namespace ballast
