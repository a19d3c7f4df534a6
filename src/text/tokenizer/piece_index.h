// Ids of pieces by their spelling.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "base/keyed_hash.h"

namespace ballast {

/// A table of ids alone, six bytes a piece: a file of small pieces must not take many times its
/// size. Keeps a reference to the spellings.
class PieceIndex {
 public:
  /// Of all spellings that are not empty and for which `wanted(id)`; of equal ones the last counts.
  template <typename Wanted>
  PieceIndex(const std::vector<std::string>& spellings, const Wanted& wanted)
      : spellings_(&spellings), places_(spellings.size() + spellings.size() / 2 + 1, kNoToken) {
    for (std::size_t i = 0; i < spellings.size(); ++i) {
      if (!spellings[i].empty() && wanted(i)) {
        places_[place(spellings[i])] = static_cast<Token>(i);
      }
    }
  }

  /// kNoToken if nothing is spelled so.
  Token find(std::string_view spelling) const { return places_[place(spelling)]; }

 private:
  /// Where it stands, or would stand: the first such or free place from its hash on.
  std::size_t place(std::string_view spelling) const {
    std::size_t i = place_of(keyed_hash(spelling), places_.size());
    while (places_[i] != kNoToken && (*spellings_)[places_[i]] != spelling) {
      if (++i == places_.size()) i = 0;
    }
    return i;
  }

  const std::vector<std::string>* spellings_;
  std::vector<Token> places_;
};

}  // namespace ballast
