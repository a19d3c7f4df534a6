#include "cli/passages.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace ballast::cli {
namespace {

constexpr std::size_t kPassage = 120, kStep = kPassage / 2;  // words

bool is_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

struct Word {
  std::string text;
  std::size_t begin = 0, end = 0;  ///< bytes of the text
};

/// In lower case.
std::vector<Word> places_of_words(std::string_view text) {
  std::vector<Word> out;
  for (std::size_t i = 0; i < text.size();) {
    if (!is_letter(text[i])) {
      ++i;
      continue;
    }
    Word word{{}, i, i};
    for (; i < text.size() && is_letter(text[i]); ++i) {
      word.text +=
          text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
    }
    word.end = i;
    out.push_back(std::move(word));
  }
  return out;
}

/// A passage of a text: how often it has each word of the question.
struct Passage {
  std::size_t text = 0, begin = 0, end = 0;
  std::size_t words = 0;
  std::map<std::string, std::size_t> counts;
};

}  // namespace

std::vector<Found> find_passages(std::span<const std::string> texts, std::string_view question) {
  std::set<std::string> wanted;
  for (Word& word : places_of_words(question)) wanted.insert(std::move(word.text));
  std::vector<Passage> passages;
  std::map<std::string, std::size_t> having;  // passages that have the word
  double words = 0;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const std::vector<Word> all = places_of_words(texts[t]);
    for (std::size_t first = 0; first < all.size(); first += kStep) {
      const std::size_t count = std::min(kPassage, all.size() - first);
      Passage passage{t, all[first].begin, all[first + count - 1].end, count, {}};
      for (std::size_t i = first; i < first + count; ++i) {
        if (wanted.contains(all[i].text)) ++passage.counts[all[i].text];
      }
      for (const auto& [word, n] : passage.counts) ++having[word];
      words += static_cast<double>(count);
      passages.push_back(std::move(passage));
      if (first + count == all.size()) break;
    }
  }
  const auto total = static_cast<double>(passages.size());
  std::vector<Found> best(texts.size());
  for (const Passage& passage : passages) {
    constexpr double k1 = 1.2, b = 0.75;
    const double length = static_cast<double>(passage.words) * total / words;
    double score = 0;
    for (const auto& [word, n] : passage.counts) {
      const auto count = static_cast<double>(n), having_it = static_cast<double>(having[word]);
      const double rarity = std::log(1 + (total - having_it + 0.5) / (having_it + 0.5));
      score += rarity * count * (k1 + 1) / (count + k1 * (1 - b + b * length));
    }
    Found& found = best[passage.text];
    if (score <= found.score) continue;
    found = {passage.text, score,
             texts[passage.text].substr(passage.begin, passage.end - passage.begin)};
  }
  std::erase_if(best, [](const Found& found) { return found.score == 0; });
  std::ranges::stable_sort(best, std::greater<>(), &Found::score);
  return best;
}

}  // namespace ballast::cli
