// Scores of picture captions, as coco-caption computes them (Chen et al. 2015).
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

using Words = std::vector<std::string>;

/// A caption as words in lower case, without punctuation: the Penn Treebank's rules for English.
Words caption_words(std::string_view text);

/// Bleu-1 to Bleu-4 of a whole set: clipped matches of all pictures against all lengths, with the
/// reference of the closest length. One caption and one list of references a picture.
std::array<double, 4> caption_bleu(std::span<const Words> captions,
                                   std::span<const std::vector<Words>> references);

/// The best precision and the best recall of the longest common subsequence with a reference,
/// β = 1.2.
double caption_rouge_l(const Words& caption, std::span<const Words> references);

/// CIDEr-D: n-grams of 1 to 4 words, weighted by how few pictures' references have them.
class Cider {
 public:
  /// Of all pictures. Throws Error if there is none.
  explicit Cider(std::span<const std::vector<Words>> references);
  /// 0 to 10.
  double score(const Words& caption, std::span<const Words> references) const;

 private:
  struct Vector {
    std::array<std::map<Words, double>, 4> weights;
    std::array<double, 4> norms{};
    double length = 0;
  };
  Vector vector_of(const Words& words) const;

  std::map<Words, std::size_t> pictures_with_;  ///< of each n-gram
  double log_pictures_ = 0;
};

/// METEOR 1.5 with its English weights, of words that are equal or have one stem (Snowball's).
/// Synonyms and paraphrases, whose tables are its own, count as different words.
struct Meteor {
  double caption_length = 0, reference_length = 0;    ///< weighted: words of content and function
  double caption_matches = 0, reference_matches = 0;  ///< the same, weighted by kind of match
  double caption_words = 0, reference_words = 0;      ///< counts, for the penalty
  double matched = 0;
  double chunks = 0;

  /// Of the reference that gives the best score.
  static Meteor of(const Words& caption, std::span<const Words> references);
  /// Counts of several pictures add up to those of the set.
  Meteor& operator+=(const Meteor& other);
  double score() const;
};

}  // namespace ballast
