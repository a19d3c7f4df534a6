// SentencePiece .model files, through the SentencePiece library.
#pragma once

#include <cstddef>
#include <cstdint>
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

  /// Appends the ids of text in which nothing is special. A text longer than `part` bytes is cut
  /// between two words of ASCII, where neither a piece nor a rule of normalisation can cross: the
  /// library takes some fifty times the memory of what it is given. The ids are those of the whole
  /// text, but that a unigram model's choice between ways of nearly one score may be the better
  /// one: the library adds up the scores of all pieces before in float32. Where a model has pieces
  /// or rules that can cross, or a text no such place, the text is not cut.
  void encode(std::string_view text, std::vector<Token>& out,
              std::size_t part = std::size_t{1} << 16) const;

  /// Whether texts are cut, as far as the model decides it.
  bool cuts_texts() const { return cuts_ != Cuts::none; }

 private:
  /// How parts behind the first begin: the space before them is what the library adds itself.
  enum class Cuts : std::uint8_t { none, keep_space, drop_space };

  Cuts find_cuts(std::string_view serialized) const;

  std::string source_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  Cuts cuts_ = Cuts::none;
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
