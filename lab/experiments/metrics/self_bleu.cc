#include <algorithm>
#include <cmath>
#include <map>

#include "base/fail.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/python_text.h"

namespace ballast {
namespace {

constexpr std::size_t kOrder = 4;

using Counts = std::map<std::vector<std::string>, std::size_t>;

struct Words {
  std::size_t size = 0;
  Counts grams[kOrder];
};

Words count_words(std::string_view text) {
  std::vector<std::string> words;
  bool within = false;
  for (char32_t c : to_code_points(text)) {
    const bool letter = is_word_character(c);
    if (!is_space(c)) {
      if (!letter || !within) words.emplace_back();
      words.back() += to_utf8({&c, 1});
    }
    within = letter;
  }
  Words out;
  out.size = words.size();
  for (std::size_t n = 1; n <= kOrder; ++n) {
    for (auto at = words.begin(); words.end() - at >= static_cast<std::ptrdiff_t>(n); ++at) {
      ++out.grams[n - 1][{at, at + static_cast<std::ptrdiff_t>(n)}];
    }
  }
  return out;
}

std::size_t distance(std::size_t a, std::size_t b) { return a > b ? a - b : b - a; }

/// BLEU of text `which` against all others.
double bleu(const std::vector<Words>& texts, std::size_t which) {
  const Words& text = texts[which];
  if (text.size == 0) return 0.0;
  double log_precision = 0;
  for (std::size_t n = 0; n < kOrder; ++n) {
    std::size_t matched = 0, all = 0;
    for (const auto& [gram, count] : text.grams[n]) {
      std::size_t most = 0;
      for (std::size_t other = 0; other < texts.size(); ++other) {
        if (other == which) continue;
        const auto found = texts[other].grams[n].find(gram);
        if (found != texts[other].grams[n].end()) most = std::max(most, found->second);
      }
      matched += std::min(count, most);
      all += count;
    }
    if (n == 0 && matched == 0) return 0.0;
    const double numerator = matched == 0 ? 0.1 : static_cast<double>(matched);
    log_precision += std::log(numerator / static_cast<double>(std::max<std::size_t>(all, 1)));
  }
  std::size_t closest = texts[which == 0 ? 1 : 0].size;
  for (std::size_t other = 0; other < texts.size(); ++other) {
    if (other == which) continue;
    const std::size_t size = texts[other].size;
    const std::size_t now = distance(size, text.size), best = distance(closest, text.size);
    if (now < best || (now == best && size < closest)) closest = size;
  }
  const double ratio = static_cast<double>(closest) / static_cast<double>(text.size);
  return std::exp(std::min(0.0, 1.0 - ratio) + log_precision / kOrder);
}

}  // namespace

double self_bleu(std::span<const std::string> texts) {
  require(texts.size() > 1, "Self-BLEU compares texts with each other: two are needed, {} came",
          texts.size());
  std::vector<Words> words;
  for (const std::string& text : texts) words.push_back(count_words(text));
  double sum = 0;
  for (std::size_t i = 0; i < words.size(); ++i) sum += bleu(words, i);
  return sum / static_cast<double>(words.size());
}

}  // namespace ballast
