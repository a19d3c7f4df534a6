#include "experiments/metrics/rouge.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/fail.h"
#include "experiments/metrics/python_text.h"

namespace ballast {
namespace {

using Words = std::vector<std::string>;

/// Lengths of the longest common subsequences of all pairs of beginnings of two lists.
class CommonLengths {
 public:
  /// Throws Error if as many words, in sentences or at once, would take too long.
  static void check_size(std::size_t x, std::size_t y, std::size_t most = std::size_t{1} << 28) {
    require(x < most / (y + 1), "ROUGE-L: {} words against {} are too many", x, y);
  }

  CommonLengths(const Words& x, const Words& y) : x_(x), y_(y), columns_(y.size() + 1) {
    check_size(x.size(), y.size(), std::size_t{1} << 24);  // 64 MiB
    lengths_.assign((x.size() + 1) * columns_, 0);
    for (std::size_t i = 1; i <= x.size(); ++i) {
      for (std::size_t j = 1; j <= y.size(); ++j) {
        lengths_[i * columns_ + j] =
            x[i - 1] == y[j - 1] ? at(i - 1, j - 1) + 1 : std::max(at(i - 1, j), at(i, j - 1));
      }
    }
  }

  std::size_t longest() const { return at(x_.size(), y_.size()); }

  /// The words of one of the longest, which depends on how ties are broken: as the package does.
  void collect(std::set<std::string>& out) const {
    std::size_t i = x_.size(), j = y_.size();
    while (i != 0 && j != 0) {
      if (x_[i - 1] == y_[j - 1]) {
        out.insert(x_[i - 1]);
        --i, --j;
      } else if (at(i - 1, j) > at(i, j - 1)) {
        --i;
      } else {
        --j;
      }
    }
  }

 private:
  std::uint32_t at(std::size_t i, std::size_t j) const { return lengths_[i * columns_ + j]; }

  const Words& x_;
  const Words& y_;
  std::size_t columns_;
  std::vector<std::uint32_t> lengths_;
};

// ---- the package `rouge` ------------------------------------------------------------------------

/// Sentences as lists of words. A sentence of blanks is one empty word.
std::vector<Words> split_sentences(std::string_view text) {
  std::vector<Words> sentences;
  for (const std::string& part : split_at(text, '.')) {
    if (part.empty()) continue;
    Words words = split_whitespace(part);
    if (words.empty()) words.emplace_back();
    sentences.push_back(std::move(words));
  }
  return sentences;
}

Words flatten(const std::vector<Words>& sentences) {
  Words all;
  for (const Words& words : sentences) all.insert(all.end(), words.begin(), words.end());
  return all;
}

double f_of_sets(std::size_t common, std::size_t said, std::size_t expected) {
  const auto fraction = [&](std::size_t n) {
    return n == 0 ? 0.0 : static_cast<double>(common) / static_cast<double>(n);
  };
  const double precision = fraction(said), recall = fraction(expected);
  return 2.0 * (precision * recall / (precision + recall + 1e-8));
}

std::set<Words> gram_set(const Words& words, std::size_t n) {
  std::set<Words> grams;
  for (std::size_t i = 0; i + n <= words.size(); ++i) {
    grams.insert(Words(words.begin() + static_cast<std::ptrdiff_t>(i),
                       words.begin() + static_cast<std::ptrdiff_t>(i + n)));
  }
  return grams;
}

double rouge_n_of_sets(const Words& said, const Words& expected, std::size_t n) {
  const auto a = gram_set(said, n), b = gram_set(expected, n);
  const auto common =
      std::count_if(a.begin(), a.end(), [&](const Words& g) { return b.contains(g); });
  return f_of_sets(static_cast<std::size_t>(common), a.size(), b.size());
}

// ---- the package `rouge_score`
// --------------------------------------------------------------------

Words plain_words(std::string_view text, bool stem) {
  std::string clean = to_lower(text);
  for (char& c : clean) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!keep) c = ' ';
  }
  Words words = split_whitespace(clean);
  for (std::string& word : words) {
    if (stem && word.size() > 3) word = porter_stem(word);
  }
  std::erase(words, "");
  return words;
}

double f_of_counts(std::size_t common, std::size_t said, std::size_t expected) {
  if (common == 0) return 0.0;
  const double precision = static_cast<double>(common) / static_cast<double>(said);
  const double recall = static_cast<double>(common) / static_cast<double>(expected);
  return 2 * precision * recall / (precision + recall);
}

double rouge_n_of_counts(const Words& said, const Words& expected, std::size_t n) {
  std::map<Words, std::size_t> left;
  const auto gram = [n](const Words& words, std::size_t i) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
    return Words(begin, begin + static_cast<std::ptrdiff_t>(n));
  };
  for (std::size_t i = 0; i + n <= expected.size(); ++i) ++left[gram(expected, i)];
  std::size_t common = 0;
  for (std::size_t i = 0; i + n <= said.size(); ++i) {
    const auto found = left.find(gram(said, i));
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++common;
  }
  const auto grams = [n](const Words& words) {
    return words.size() + 1 > n ? words.size() + 1 - n : 0;
  };
  return f_of_counts(common, grams(said), grams(expected));
}

}  // namespace

RougeScores rouge_of_sets(std::string_view prediction, std::string_view truth) {
  const auto said = split_sentences(prediction), expected = split_sentences(truth);
  if (said.empty() || expected.empty()) return {};
  const Words said_words = flatten(said), expected_words = flatten(expected);
  CommonLengths::check_size(expected_words.size(), said_words.size());
  std::set<std::string> common;
  for (const Words& sentence : expected) {
    for (const Words& other : said) CommonLengths(sentence, other).collect(common);
  }
  return {
      rouge_n_of_sets(said_words, expected_words, 1),
      rouge_n_of_sets(said_words, expected_words, 2),
      f_of_sets(common.size(), gram_set(said_words, 1).size(), gram_set(expected_words, 1).size())};
}

RougeScores rouge_of_counts(std::string_view prediction, std::string_view truth, bool stem) {
  const Words said = plain_words(prediction, stem), expected = plain_words(truth, stem);
  return {rouge_n_of_counts(said, expected, 1), rouge_n_of_counts(said, expected, 2),
          f_of_counts(CommonLengths(expected, said).longest(), said.size(), expected.size())};
}

}  // namespace ballast
