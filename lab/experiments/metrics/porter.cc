// Porter's algorithm for suffix stripping (Program 14(3), 1980), as NLTK runs it by default: with
// Porter's own later changes, a few irregular words, and two of NLTK's.
#include <algorithm>
#include <array>
#include <utility>

#include "experiments/metrics/rouge.h"

namespace ballast {
namespace {

using std::string;
using std::string_view;

constexpr std::pair<string_view, string_view> kIrregular[] = {
    {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
    {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
    {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
    {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};

bool is_consonant(string_view word, std::size_t i) {
  bool consonant = true;  // y is one at the beginning and after a vowel: walk there from the start
  for (std::size_t k = 0; k <= i; ++k) {
    const char c = word[k];
    const bool vowel = c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
    consonant = c == 'y' ? k == 0 || !consonant : !vowel;
  }
  return consonant;
}

/// m: how often a consonant follows a vowel.
std::size_t measure(string_view stem) {
  std::size_t m = 0;
  for (std::size_t i = 1; i < stem.size(); ++i) {
    m += is_consonant(stem, i) && !is_consonant(stem, i - 1);
  }
  return m;
}

bool has_vowel(string_view stem) {
  for (std::size_t i = 0; i < stem.size(); ++i) {
    if (!is_consonant(stem, i)) return true;
  }
  return false;
}

bool ends_double_consonant(string_view word) {
  const std::size_t n = word.size();
  return n > 1 && word[n - 1] == word[n - 2] && is_consonant(word, n - 1);
}

/// Consonant, vowel, consonant other than w, x, y; or vowel, consonant and nothing before.
bool ends_cvc(string_view word) {
  const std::size_t n = word.size();
  if (n == 2) return !is_consonant(word, 0) && is_consonant(word, 1);
  if (n < 3 || !is_consonant(word, n - 1) || is_consonant(word, n - 2)) return false;
  const char last = word[n - 1];
  return is_consonant(word, n - 3) && last != 'w' && last != 'x' && last != 'y';
}

struct Rule {
  string_view suffix;
  string_view replacement;
};

/// Applies the first rule whose suffix the word has, if the measure of what is left exceeds
/// `least`.
string apply(const string& word, std::size_t least, const Rule* begin, const Rule* end) {
  for (const Rule* rule = begin; rule != end; ++rule) {
    if (!word.ends_with(rule->suffix)) continue;
    const string stem = word.substr(0, word.size() - rule->suffix.size());
    return measure(stem) > least ? stem + string(rule->replacement) : word;
  }
  return word;
}

string cut(const string& word, std::size_t letters) {
  return word.substr(0, word.size() - letters);
}

string step_1a(const string& word) {
  if (word.ends_with("ies")) return cut(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("sses")) return cut(word, 2);
  if (word.ends_with("ss")) return word;
  return word.ends_with("s") ? cut(word, 1) : word;
}

string step_1b(const string& word) {
  if (word.ends_with("ied")) return cut(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("eed")) return measure(cut(word, 3)) > 0 ? cut(word, 1) : word;
  string stem;
  if (word.ends_with("ed") && has_vowel(cut(word, 2))) {
    stem = cut(word, 2);
  } else if (word.ends_with("ing") && has_vowel(cut(word, 3))) {
    stem = cut(word, 3);
  } else {
    return word;
  }
  if (stem.ends_with("at") || stem.ends_with("bl") || stem.ends_with("iz")) return stem + "e";
  if (ends_double_consonant(stem)) {
    const char last = stem.back();
    return last == 'l' || last == 's' || last == 'z' ? stem : cut(stem, 1);
  }
  return measure(stem) == 1 && ends_cvc(stem) ? stem + "e" : stem;
}

string step_1c(const string& word) {
  const bool turns = word.size() > 2 && word.back() == 'y' && is_consonant(word, word.size() - 2);
  return turns ? cut(word, 1) + "i" : word;
}

string step_2(const string& word) {
  if (word.ends_with("alli") && measure(cut(word, 4)) > 0) return step_2(cut(word, 2));
  if (word.ends_with("logi")) return measure(cut(word, 3)) > 0 ? cut(word, 1) : word;
  static constexpr Rule kRules[] = {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},
                                    {"anci", "ance"},   {"izer", "ize"},    {"bli", "ble"},
                                    {"alli", "al"},     {"fulli", "ful"},   {"entli", "ent"},
                                    {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"},
                                    {"ation", "ate"},   {"ator", "ate"},    {"alism", "al"},
                                    {"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"},
                                    {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"}};
  return apply(word, 0, std::begin(kRules), std::end(kRules));
}

string step_3(const string& word) {
  static constexpr Rule kRules[] = {{"icate", "ic"}, {"ative", ""},  {"alize", "al"},
                                    {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""},
                                    {"ness", ""}};
  return apply(word, 0, std::begin(kRules), std::end(kRules));
}

string step_4(const string& word) {
  if (word.ends_with("sion") || word.ends_with("tion")) {
    return measure(cut(word, 3)) > 1 ? cut(word, 3) : word;
  }
  static constexpr Rule kRules[] = {
      {"al", ""},   {"ance", ""}, {"ence", ""},  {"er", ""},   {"ic", ""},  {"able", ""},
      {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""}, {"ent", ""}, {"ou", ""},
      {"ism", ""},  {"ate", ""},  {"iti", ""},   {"ous", ""},  {"ive", ""}, {"ize", ""}};
  return apply(word, 1, std::begin(kRules), std::end(kRules));
}

string step_5(const string& word) {
  string out = word;
  if (out.ends_with("e")) {
    const string stem = cut(out, 1);
    const std::size_t m = measure(stem);
    if (m > 1 || (m == 1 && !ends_cvc(stem))) out = stem;
  }
  return out.ends_with("ll") && measure(cut(out, 1)) > 1 ? cut(out, 1) : out;
}

}  // namespace

std::string porter_stem(std::string_view word) {
  for (const auto& [form, stem] : kIrregular) {
    if (word == form) return string(stem);
  }
  // No English word is longer than 100 letters, and consonants are found by a walk from the start.
  if (word.size() < 3 || word.size() > 100) return string(word);
  return step_5(step_4(step_3(step_2(step_1c(step_1b(step_1a(string(word))))))));
}

}  // namespace ballast
