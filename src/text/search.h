// Which texts a question is about, by its words.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::cli {

struct Found {
  std::size_t text = 0;  ///< its number
  double score = 0;      ///< of its best passage: BM25 (k1 = 1.2, b = 0.75)
  std::string passage;   ///< in the text's own words
};

/// The texts with a word of the question, best first. Words are of letters and digits, in any case;
/// bytes outside ASCII are letters. A text is as good as its best passage of
/// about 120 words, which may overlap the next by half.
std::vector<Found> find_passages(std::span<const std::string> texts, std::string_view question);

}  // namespace ballast::cli
