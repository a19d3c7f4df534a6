// SentencePiece .model files, through the SentencePiece library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ballast {

class SentencePieceModel {
 public:
  /// `serialized` is the content of a .model file. Throws Error that names `source`.
  SentencePieceModel(const std::string& serialized, const std::string& source);
  ~SentencePieceModel();
  SentencePieceModel(SentencePieceModel&&) noexcept;

  /// Pieces, scores, types and special ids; the model itself is not copied into it.
  Vocabulary vocabulary() const;

  /// Appends the ids of text in which nothing is special.
  void encode(std::string_view text, std::vector<Token>& out) const;

 private:
  std::string source_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

/// What a .model file holds, for models that come in another form.
struct SentencePieceParts {
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<TokenType> types;
  bool unigram = true;  ///< otherwise byte-pair encoding
  bool byte_fallback = false;
  bool add_space_prefix = true;
  bool remove_extra_spaces = false;
  std::string character_map;  ///< compiled normalisation rules, as the library writes them
};

/// The content of a .model file.
std::string serialize(const SentencePieceParts& parts);

}  // namespace ballast
