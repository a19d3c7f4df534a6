// SentencePiece .model files, through the SentencePiece library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "text/tokenizer/character_map.h"
#include "text/tokenizer/neighbours.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ballast {

class SentencePieceModel {
 public:
  static constexpr std::size_t kPart = std::size_t{1} << 16;

  /// `serialized` is the content of a .model file. Throws Error that names `source`.
  SentencePieceModel(const std::string& serialized, const std::string& source);
  ~SentencePieceModel();
  SentencePieceModel(SentencePieceModel&&) noexcept;

  /// Pieces, scores, types and special ids; the model itself is not copied into it.
  Vocabulary vocabulary() const;

  /// Appends the ids of text in which nothing is special. A text longer than `part` bytes is cut
  /// between two words or two characters, where neither a piece nor a rule of normalisation can
  /// cross: the library takes some fifty times the memory of what it is given. The ids are those of
  /// the whole text, but that a unigram model's choice between ways of nearly one score may be the
  /// better one: the library adds up the scores of all pieces before in float32. Where a model has
  /// pieces or rules that can cross, or a text no such place, the text is not cut.
  /// `after_part`: called after each; it may throw.
  void encode(
      std::string_view text, std::vector<Token>& out, std::size_t part = kPart,
      const std::function<void()>& after_part = [] {}) const;

  /// The first place at `at` or behind where a text may be cut; the text's size where there is
  /// none.
  std::size_t next_cut(std::string_view text, std::size_t at) const;

 private:
  /// How a part that is cut off at a space begins: with it, or without, for the library adds one.
  enum class Words : std::uint8_t { whole, with_space, without_space };

  void find_cuts(std::string_view serialized);
  Words find_words(bool adds_space, bool removes_extra_spaces) const;
  void find_neighbours();
  bool is_plain(std::string_view character) const;
  bool is_between_words(std::string_view text, std::size_t at) const;
  bool is_between_characters(std::string_view text, std::size_t at) const;

  std::string source_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  Words words_ = Words::whole;
  bool characters_ = false;
  bool joins_unknown_ = true;         ///< else they become bytes
  std::unique_ptr<RuleBytes> rules_;  ///< of the normalisation
  Neighbours neighbours_;
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
