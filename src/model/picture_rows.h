// Rows that stand in the place of tokens' embeddings: what a model sees of pictures.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "ballast/engine/tokenizer.h"
#include "ballast/matrix.h"

namespace ballast {

/// A picture's rows and the ids that they have as tokens: `first`, first + 1, …, all below
/// kNoToken.
struct HeldPicture {
  Token first = 0;
  std::string digest;  ///< of the pixels
  Matrix rows;         ///< of the model's width
};

/// The pictures that someone holds. Ids follow from the digest alone, unless two pictures in memory
/// would share one. Safe to use from many threads.
class PictureRows {
 public:
  /// The picture of this digest, if someone holds it.
  std::shared_ptr<const HeldPicture> find(std::string_view digest) const;
  /// Its rows have ids as long as what is returned. `digest`: at least 8 hexadecimal digits.
  std::shared_ptr<const HeldPicture> add(std::string digest, Matrix rows);
  /// The picture that has this id; null: none.
  std::shared_ptr<const HeldPicture> holder(Token token) const;

 private:
  /// The first picture whose ids end behind `first`, without those that no one holds.
  std::shared_ptr<const HeldPicture> next_holder(Token first) const;

  mutable std::mutex mutex_;
  mutable std::map<Token, std::weak_ptr<const HeldPicture>> by_last_;  ///< id
};

}  // namespace ballast
