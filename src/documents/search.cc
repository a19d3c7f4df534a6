#include "documents/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "documents/passages.h"

namespace ballast {
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

/// A run of words of a text: how often it has each word of the question.
struct Run {
  std::size_t text = 0, begin = 0, end = 0;
  std::size_t words = 0;
  std::map<std::string, std::size_t> counts;
};

}  // namespace

std::vector<Found> find_passages(std::span<const std::string_view> texts, std::string_view question,
                                 std::size_t most) {
  std::set<std::string> wanted;
  for (Word& word : places_of_words(question)) wanted.insert(std::move(word.text));
  std::vector<Run> runs;
  std::map<std::string, std::size_t> having;  // runs that have the word
  double words = 0;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const std::vector<Word> all = places_of_words(texts[t]);
    for (std::size_t first = 0; first < all.size(); first += kStep) {
      const std::size_t count = std::min(kPassage, all.size() - first);
      Run run{t, all[first].begin, all[first + count - 1].end, count, {}};
      for (std::size_t i = first; i < first + count; ++i) {
        if (wanted.contains(all[i].text)) ++run.counts[all[i].text];
      }
      for (const auto& [word, n] : run.counts) ++having[word];
      words += static_cast<double>(count);
      runs.push_back(std::move(run));
      if (first + count == all.size()) break;
    }
  }
  const auto total = static_cast<double>(runs.size());
  const auto rarity = [&](const std::string& word) {
    const auto having_it = static_cast<double>(having[word]);
    return std::log(1 + (total - having_it + 0.5) / (having_it + 0.5));
  };
  std::vector<Found> best(texts.size());
  std::vector<const Run*> best_run(texts.size());
  for (const Run& run : runs) {
    constexpr double k1 = 1.2, b = 0.75;
    const double length = static_cast<double>(run.words) * total / words;
    double score = 0;
    for (const auto& [word, n] : run.counts) {
      const auto count = static_cast<double>(n);
      score += rarity(word) * count * (k1 + 1) / (count + k1 * (1 - b + b * length));
    }
    if (score <= best[run.text].score) continue;
    best[run.text] = {run.text, score, 0, ""};
    best_run[run.text] = &run;
  }
  std::erase_if(best, [](const Found& found) { return found.score == 0; });
  std::ranges::stable_sort(best, std::greater<>(), &Found::score);
  if (best.size() > most) best.resize(most);
  for (Found& found : best) {
    const std::string_view text = texts[found.text];
    const Run& run = *best_run[found.text];
    double most_rare = 0;
    for (const Passage& sentence : sentences(text)) {
      if (sentence.end <= run.begin || sentence.begin >= run.end) continue;
      std::set<std::string> has;
      for (Word& word :
           places_of_words(text.substr(sentence.begin, sentence.end - sentence.begin))) {
        if (wanted.contains(word.text)) has.insert(std::move(word.text));
      }
      double rare = 0;
      for (const std::string& word : has) rare += rarity(word);
      if (rare <= most_rare) continue;
      most_rare = rare;
      // Of a sentence that is longer than the run, what is in the run.
      const bool longer = sentence.end - sentence.begin > run.end - run.begin;
      found.begin = longer ? std::max(sentence.begin, run.begin) : sentence.begin;
      const std::size_t end = longer ? run.end : std::max(run.end, sentence.end);
      found.passage = text.substr(found.begin, end - found.begin);
    }
  }
  return best;
}

}  // namespace ballast
