// The states of a sequence's recurrent layers: of a fixed size each, whatever the length of the
// text. They cannot forget their last tokens, so a copy of an earlier token is kept.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ballast/serialize.h"

namespace ballast {

class RecurrentStates {
 public:
  /// `sizes`: float32 elements of each layer's state, all 0 before the first token.
  explicit RecurrentStates(std::span<const std::size_t> sizes);

  /// The model that reads `tokens` more changes the state of a layer and calls advance(). Throws
  /// Error if there is no such layer.
  std::span<float> state(std::size_t layer);
  void advance(std::size_t layer, std::size_t tokens);
  /// Remembers all states as they are, in the place of those remembered before: Cache::truncate()
  /// can go back to this token.
  void keep();
  /// The most tokens, up to `tokens`, that Cache::truncate() can leave: 0, those of keep(), or all
  /// that were read.
  std::size_t reachable(std::size_t tokens) const;
  /// Throws Error if there is no copy of that token.
  void truncate(std::size_t tokens);
  std::size_t bytes() const;

  /// Throws Error unless every layer has read `tokens` tokens.
  void save(ByteWriter& out, std::size_t tokens) const;
  /// set_tokens() follows. Throws Error on elements that are not finite.
  void load(ByteReader& in);
  /// Throws Error, beginning with `what`, if the copy is of a later token.
  void set_tokens(std::size_t tokens, const std::string& what);

 private:
  using States = std::vector<std::vector<float>>;

  States now_;
  std::vector<std::size_t> tokens_;  ///< that each layer has read
  States kept_;                      ///< empty: none
  std::size_t kept_tokens_ = 0;
};

}  // namespace ballast
