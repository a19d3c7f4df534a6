#include "experiments/metrics/captions.h"

#include <libstemmer.h>

#include <algorithm>
#include <bitset>
#include <cmath>
#include <memory>
#include <set>

#include "base/fail.h"

namespace ballast {
namespace {

constexpr std::size_t kMostOrder = 4;

/// All runs of 1 to 4 words and how often they occur.
std::map<Words, double> counts_of(const Words& words) {
  std::map<Words, double> out;
  for (std::size_t n = 1; n <= kMostOrder; ++n) {
    for (std::size_t i = 0; i + n <= words.size(); ++i) {
      const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
      ++out[Words(begin, begin + static_cast<std::ptrdiff_t>(n))];
    }
  }
  return out;
}

bool is_mark(std::string_view word) {
  static const std::set<std::string, std::less<>> marks = {"''", "'", "``", "`",  ".",   "?", "!",
                                                           ",",  ":", "-",  "--", "...", ";"};
  return marks.contains(word);
}

/// A word without blanks as the Treebank cuts it: "man's" is "man" and "'s".
void add_word(std::string_view word, Words& out) {
  for (std::string_view whole : {"cannot", "gonna", "gotta", "wanna"}) {
    if (word != whole) continue;
    out.emplace_back(word.substr(0, 3));
    out.emplace_back(word.substr(3));
    return;
  }
  for (std::string_view end : {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m"}) {
    if (word.size() <= end.size() || !word.ends_with(end)) continue;
    out.emplace_back(word.substr(0, word.size() - end.size()));
    out.emplace_back(end);
    return;
  }
  out.emplace_back(word);
}

}  // namespace

Words caption_words(std::string_view text) {
  Words all;
  std::string word;
  const auto end_word = [&] {
    // Marks at both ends stand alone; within a word they belong to it: "black-and-white", "3.5".
    std::size_t begin = 0, end = word.size();
    const auto loose = [](char c) {
      return std::string_view(".,:;!?-'`").find(c) != std::string::npos;
    };
    while (begin < end && loose(word[begin])) ++begin;
    while (end > begin && loose(word[end - 1])) --end;
    const std::string_view inner = std::string_view(word).substr(begin, end - begin);
    // An abbreviation keeps its last point: "u.s."
    if (inner.find('.') != std::string_view::npos && end < word.size() && word[end] == '.') ++end;
    if (end > begin) add_word(std::string_view(word).substr(begin, end - begin), all);
    word.clear();
  };
  // As the Treebank spells brackets.
  static const std::map<char, const char*> brackets = {{'(', "-lrb-"}, {')', "-rrb-"},
                                                       {'[', "-lsb-"}, {']', "-rsb-"},
                                                       {'{', "-lcb-"}, {'}', "-rcb-"}};
  for (const char c : text) {
    const auto bracket = brackets.find(c);
    const auto among = [c](std::string_view marks) { return marks.find(c) != marks.npos; };
    if (bracket != brackets.end() || among("$%&#@*+=<>")) {
      end_word();
      all.emplace_back(bracket != brackets.end() ? bracket->second : std::string(1, c));
    } else if (c == ' ' || (c >= '\t' && c <= '\r') || among("\"!?;")) {
      end_word();
    } else {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  end_word();
  std::erase_if(all, is_mark);
  return all;
}

std::array<double, 4> caption_bleu(std::span<const Words> captions,
                                   std::span<const std::vector<Words>> references) {
  std::array<double, kMostOrder> right{}, all{};
  double length = 0, closest_length = 0;
  for (std::size_t p = 0; p < captions.size(); ++p) {
    const auto size = static_cast<double>(captions[p].size());
    std::map<Words, double> most;
    double closest = 0, off = -1;
    for (const Words& reference : references[p]) {
      for (const auto& [gram, count] : counts_of(reference)) {
        most[gram] = std::max(most[gram], count);
      }
      const auto other = static_cast<double>(reference.size());
      const double difference = std::abs(other - size);
      if (off < 0 || difference < off || (difference == off && other < closest)) {
        closest = other;
        off = difference;
      }
    }
    length += size;
    closest_length += closest;
    for (const auto& [gram, count] : counts_of(captions[p])) {
      const auto found = most.find(gram);
      all[gram.size() - 1] += count;
      if (found != most.end()) right[gram.size() - 1] += std::min(count, found->second);
    }
  }
  constexpr double kTiny = 1e-15, kSmall = 1e-9;
  const double ratio = (length + kTiny) / (closest_length + kSmall);
  std::array<double, kMostOrder> out{};
  double product = 1;
  for (std::size_t n = 0; n < kMostOrder; ++n) {
    product *= (right[n] + kTiny) / (all[n] + kSmall);
    out[n] = std::pow(product, 1.0 / static_cast<double>(n + 1));
    if (ratio < 1) out[n] *= std::exp(1 - 1 / ratio);
  }
  return out;
}

double caption_rouge_l(const Words& caption, std::span<const Words> references) {
  if (caption.empty()) return 0;
  double precision = 0, recall = 0;
  for (const Words& reference : references) {
    std::vector<std::size_t> row(reference.size() + 1);
    for (const std::string& word : caption) {
      std::size_t diagonal = 0;
      for (std::size_t i = 1; i < row.size(); ++i) {
        const std::size_t above = row[i];
        row[i] = word == reference[i - 1] ? diagonal + 1 : std::max(row[i], row[i - 1]);
        diagonal = above;
      }
    }
    const auto common = static_cast<double>(row.back());
    precision = std::max(precision, common / static_cast<double>(caption.size()));
    if (!reference.empty()) {
      recall = std::max(recall, common / static_cast<double>(reference.size()));
    }
  }
  constexpr double kBeta2 = 1.2 * 1.2;
  if (precision == 0 || recall == 0) return 0;
  return (1 + kBeta2) * precision * recall / (recall + kBeta2 * precision);
}

Cider::Cider(std::span<const std::vector<Words>> references) {
  require(!references.empty(), "CIDEr of no pictures");
  log_pictures_ = std::log(static_cast<double>(references.size()));
  for (const std::vector<Words>& of_picture : references) {
    std::set<Words> grams;
    for (const Words& reference : of_picture) {
      for (const auto& [gram, count] : counts_of(reference)) grams.insert(gram);
    }
    for (const Words& gram : grams) ++pictures_with_[gram];
  }
}

Cider::Vector Cider::vector_of(const Words& words) const {
  Vector out;
  for (const auto& [gram, count] : counts_of(words)) {
    const auto found = pictures_with_.find(gram);
    const double with = found == pictures_with_.end() ? 1.0 : static_cast<double>(found->second);
    const double weight = count * (log_pictures_ - std::log(std::max(1.0, with)));
    const std::size_t n = gram.size() - 1;
    out.weights[n][gram] = weight;
    out.norms[n] += weight * weight;
    if (n == 1) out.length += count;
  }
  for (double& norm : out.norms) norm = std::sqrt(norm);
  return out;
}

double Cider::score(const Words& caption, std::span<const Words> references) const {
  constexpr double kSigma = 6;
  const Vector own = vector_of(caption);
  double sum = 0;
  for (const Words& reference : references) {
    const Vector other = vector_of(reference);
    const double delta = own.length - other.length;
    for (std::size_t n = 0; n < kMostOrder; ++n) {
      double product = 0;
      for (const auto& [gram, weight] : own.weights[n]) {
        const auto found = other.weights[n].find(gram);
        if (found != other.weights[n].end()) {
          product += std::min(weight, found->second) * found->second;
        }
      }
      const double norms = own.norms[n] * other.norms[n];
      if (norms != 0) product /= norms;
      sum += product * std::exp(-delta * delta / (2 * kSigma * kSigma));
    }
  }
  return references.empty() ? 0 : 10 * sum / (kMostOrder * static_cast<double>(references.size()));
}

// ---- METEOR
// --------------------------------------------------------------------------------------

namespace {

constexpr double kAlpha = 0.85, kBeta = 0.2, kGamma = 0.6, kDelta = 0.75, kStemWeight = 0.6;
constexpr std::size_t kMostWords = 256;  ///< of a caption that are aligned

/// The most frequent words of English, which say little of what is seen.
bool is_function_word(std::string_view word) {
  static const std::set<std::string, std::less<>> words = {
      "the",   "of",   "to",   "and",   "a",    "in",   "is",   "that",  "for",  "on",
      "it",    "with", "as",   "was",   "be",   "by",   "at",   "this",  "have", "are",
      "not",   "from", "he",   "'s",    "has",  "an",   "i",    "which", "we",   "his",
      "but",   "will", "they", "their", "been", "or",   "were", "had",   "who",  "its",
      "would", "you",  "all",  "there", "one",  "more", "can",  "if",    "when", "so",
      "about", "also", "out",  "up",    "what", "than", "no",   "other", "some", "over",
      "she",   "her",  "him",  "them",  "do",   "does", "did"};
  return words.contains(word);
}

std::string stem_of(const std::string& word) {
  struct Delete {
    void operator()(sb_stemmer* stemmer) const { sb_stemmer_delete(stemmer); }
  };
  thread_local const std::unique_ptr<sb_stemmer, Delete> stemmer(
      sb_stemmer_new("english", "UTF_8"));
  require(stemmer != nullptr, "the Snowball library has no English");
  const sb_symbol* stem =
      sb_stemmer_stem(stemmer.get(), reinterpret_cast<const sb_symbol*>(word.data()),
                      static_cast<int>(word.size()));
  return {reinterpret_cast<const char*>(stem),
          static_cast<std::size_t>(sb_stemmer_length(stemmer.get()))};
}

struct Pairing {
  std::size_t word, other;
  double weight;
};

/// A beginning of an alignment, word by word of the caption.
struct Path {
  std::bitset<kMostWords> used;
  std::vector<Pairing> pairs;
  std::size_t chunks = 0;
  std::size_t distance = 0;  ///< how far apart words stand in the two

  bool better_than(const Path& o) const {
    if (pairs.size() != o.pairs.size()) return pairs.size() > o.pairs.size();
    if (chunks != o.chunks) return chunks < o.chunks;
    return distance < o.distance;
  }
};

/// The alignment with the most words, then with the fewest chunks, as far as a beam finds it.
Path align(const Words& caption, const Words& reference) {
  constexpr std::size_t kBeam = 40;
  std::vector<std::string> stems, other_stems;
  for (const std::string& word : caption) stems.push_back(stem_of(word));
  for (const std::string& word : reference) other_stems.push_back(stem_of(word));
  const std::size_t words = std::min(caption.size(), kMostWords);
  const std::size_t others = std::min(reference.size(), kMostWords);
  std::vector<Path> paths(1);
  for (std::size_t i = 0; i < words; ++i) {
    std::vector<Path> next = paths;  // the word stays alone
    for (const Path& path : paths) {
      for (std::size_t j = 0; j < others; ++j) {
        const bool equal = caption[i] == reference[j];
        if (path.used[j] || (!equal && stems[i] != other_stems[j])) continue;
        Path longer = path;
        const bool goes_on = !path.pairs.empty() && path.pairs.back().word + 1 == i &&
                             path.pairs.back().other + 1 == j;
        longer.used[j] = true;
        longer.pairs.push_back({i, j, equal ? 1.0 : kStemWeight});
        longer.chunks += goes_on ? 0 : 1;
        longer.distance += i > j ? i - j : j - i;
        next.push_back(std::move(longer));
      }
    }
    const auto kept = static_cast<std::ptrdiff_t>(std::min(kBeam, next.size()));
    std::partial_sort(next.begin(), next.begin() + kept, next.end(),
                      [](const Path& a, const Path& b) { return a.better_than(b); });
    next.resize(static_cast<std::size_t>(kept));
    paths = std::move(next);
  }
  return std::move(paths.front());
}

double weight_of(const std::string& word) { return is_function_word(word) ? 1 - kDelta : kDelta; }

/// The parts of hyphenated words, as METEOR's normaliser has them.
Words without_hyphens(const Words& words) {
  Words out;
  for (const std::string& word : words) {
    for (std::size_t begin = 0; begin < word.size();) {
      const std::size_t end = std::min(word.find('-', begin), word.size());
      if (end > begin) out.push_back(word.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return out;
}

Meteor meteor_of(const Words& caption, const Words& reference) {
  Meteor out;
  for (const std::string& word : caption) out.caption_length += weight_of(word);
  for (const std::string& word : reference) out.reference_length += weight_of(word);
  out.caption_words = static_cast<double>(caption.size());
  out.reference_words = static_cast<double>(reference.size());
  const Path path = align(caption, reference);
  for (const Pairing& pair : path.pairs) {
    out.caption_matches += pair.weight * weight_of(caption[pair.word]);
    out.reference_matches += pair.weight * weight_of(reference[pair.other]);
  }
  out.matched = static_cast<double>(path.pairs.size());
  out.chunks = static_cast<double>(path.chunks);
  return out;
}

}  // namespace

Meteor Meteor::of(const Words& caption, std::span<const Words> references) {
  Meteor best;
  double most = -1;
  const Words parts = without_hyphens(caption);
  for (const Words& reference : references) {
    const Meteor one = meteor_of(parts, without_hyphens(reference));
    if (one.score() > most) {
      most = one.score();
      best = one;
    }
  }
  return best;
}

Meteor& Meteor::operator+=(const Meteor& o) {
  caption_length += o.caption_length;
  reference_length += o.reference_length;
  caption_matches += o.caption_matches;
  reference_matches += o.reference_matches;
  caption_words += o.caption_words;
  reference_words += o.reference_words;
  matched += o.matched;
  chunks += o.chunks;
  return *this;
}

double Meteor::score() const {
  if (caption_length == 0 || reference_length == 0 || matched == 0) return 0;
  const double precision = caption_matches / caption_length;
  const double recall = reference_matches / reference_length;
  if (precision == 0 || recall == 0) return 0;
  const double mean = precision * recall / (kAlpha * precision + (1 - kAlpha) * recall);
  const bool whole = matched == caption_words && matched == reference_words && chunks == 1;
  const double penalty = whole ? 0 : kGamma * std::pow(chunks / matched, kBeta);
  return mean * (1 - penalty);
}

}  // namespace ballast
