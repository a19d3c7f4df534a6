// Synthetic questions of any length and depth: LongEval's line retrieval, RULER's needles and
// passkeys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "experiments/data/samples.h"
#include "experiments/tasks/too_short.h"

namespace ballast {

/// A haystack of sentences, repeated as often as needed.
class Haystack {
 public:
  /// The few sentences that the passkey test and RULER's first needle use. Throws Error that names
  /// the tokenizer's file if it makes no tokens of them.
  explicit Haystack(const Tokenizer& tokenizer);
  /// The sentences of all .txt files of a folder, in order of their names; or of one file. Throws
  /// Error when there is none, or no tokens of them.
  Haystack(const Tokenizer& tokenizer, const std::filesystem::path& path);

  /// At most `tokens` tokens of sentences, from a start that `seed` selects, with `hidden[i]`
  /// inserted at the fraction `depths[i]`. Throws TooShort if the hidden texts alone are longer.
  std::string hide(std::size_t tokens, const std::vector<std::string>& hidden,
                   const std::vector<double>& depths, std::uint64_t seed) const;

  /// Its different words of 4 to 12 ASCII letters, all in lower case, in order.
  std::vector<std::string> words() const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  struct Sentence {
    std::string text;  ///< without the space before it
    std::size_t tokens = 0;
  };
  void add(std::string_view text);
  void check() const;

  const Tokenizer* tokenizer_;
  std::vector<Sentence> sentences_;
  bool found_text_ = false;
  bool repeats_whole_ = false;  ///< always begins with the first sentence
};

/// Asks for one of `needles` needles, hidden at `depth` of a prompt of at most `tokens` tokens; the
/// others are at random depths. Values have seven digits. group: length, depth. expected: the list
/// of the answer's strings. Throws TooShort if needles and question have no room.
Sample needle_sample(const Haystack& haystack, std::size_t tokens, double depth,
                     std::size_t needles, std::uint64_t seed);
/// A passkey of five digits. Throws TooShort as above.
Sample passkey_sample(const Haystack& haystack, std::size_t tokens, double depth,
                      std::uint64_t seed);
/// A record of `lines` lines. group: lines. expected: the number.
Sample lines_sample(std::size_t lines, std::uint64_t seed);
/// `questions` of them about one record, each of another line; the first is that of lines_sample().
/// Throws Error if there are more questions than lines.
std::vector<Sample> lines_samples(std::size_t lines, std::size_t questions, std::uint64_t seed);

}  // namespace ballast
