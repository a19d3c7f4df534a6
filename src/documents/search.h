// Which texts a question is about, by its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct Found {
  std::size_t text = 0;   ///< its number
  double score = 0;       ///< of its best passage: BM25 (k1 = 1.2, b = 0.75)
  std::size_t begin = 0;  ///< byte of the text at which the passage's best sentence begins
  std::string passage;    ///< from that sentence on, in the text's own words
};

/// The words of a text's passages: about 12 bytes a word.
class PassageIndex {
 public:
  explicit PassageIndex(std::string_view text);

 private:
  friend std::vector<Found> find_passages(std::span<const struct IndexedText> texts,
                                          std::string_view question, std::size_t most);
  struct Run {
    std::size_t begin = 0, end = 0, words = 0;
  };
  /// That a run has a word.
  struct Occurrence {
    std::uint32_t term = 0;  ///< a hash
    std::uint32_t run : 24 = 0, count : 8 = 0;
  };
  std::vector<Run> runs_;
  std::vector<Occurrence> places_;  ///< by term, then run
};

struct IndexedText {
  std::string_view text;
  const PassageIndex* index = nullptr;  ///< of this text
};

/// The `most` best texts with a word of the question, best first. Words are of letters and digits,
/// whatever their case, accents and vowel points; "oe" meets œ and ö, and a word of Arabic or
/// Hebrew the same with its article. In Chinese, Japanese and Korean each character is a word, and
/// each two in a row are another; ICU finds words in Thai, Lao, Khmer and Burmese. A text is as
/// good as its best passage of about 120 words, which may overlap the next by half. Of a passage
/// the sentence is best whose words of the question are rarest.
std::vector<Found> find_passages(std::span<const IndexedText> texts, std::string_view question,
                                 std::size_t most);

/// The share of the words of an answer that a text does not have; 0 where there are none. Those of
/// the question do not count, nor does a "Yes," or "Nein." at the beginning. Words are as above.
double missing_words(std::string_view text, std::string_view question, std::string_view answer);

/// The share of the question's words, by their rarity among the text's sentences, that stand near
/// the answer: in three sentences in a row that have half of the answer's own words, or more.
double words_near(std::string_view text, std::string_view question, std::string_view answer);

}  // namespace ballast
