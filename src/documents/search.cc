#include "documents/search.h"

#include <libstemmer.h>
#include <unicode/brkiter.h>
#include <unicode/normalizer2.h>
#include <unicode/translit.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utext.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/fnv.h"
#include "documents/passages.h"

namespace ballast {
namespace {

constexpr std::size_t kPassage = 120, kStep = kPassage / 2;  // words

struct Word {
  std::string text;
  /// Another form that meets: with the next character in scripts that put no blanks between words,
  /// without its article in Arabic and Hebrew, with "ae" for "ä". May be empty.
  std::string other;
  std::size_t begin = 0, end = 0;  ///< bytes of the text
};

/// Marks that a word may have or lack: accents, points of Hebrew, vowels and hamza of Arabic.
bool is_optional(char16_t c) {
  return (c >= 0x300 && c < 0x370) || (c >= 0x591 && c < 0x5c8) || (c >= 0x610 && c < 0x61b) ||
         c == 0x640 || (c >= 0x64b && c < 0x660) || c == 0x670 || (c >= 0x6d6 && c < 0x6ee);
}

/// One of the letters and digits that are written for one another.
char16_t usual(char16_t c) {
  // Turkish i without a dot; alef, yeh, kaf and the last teh, in Arabic or Persian.
  constexpr std::u16string_view kOthers = u"\u0131\u0671\u0649\u06cc\u06a9\u0629";
  if (const std::size_t at = kOthers.find(c); at != kOthers.npos) {
    return u"i\u0627\u064a\u064a\u0643\u0647"[at];
  }
  const std::int32_t digit = c < 0x80 ? -1 : u_charDigitValue(c);
  return digit < 0 ? c : static_cast<char16_t>(u'0' + digit);
}

/// How others write the accent behind a letter: "ae" for "ä", "aa" for "å"; 0: they leave it out.
char16_t spelled_accent(char16_t letter, char16_t accent) {
  if (accent == 0x308 && (letter == u'a' || letter == u'o' || letter == u'u')) return u'e';
  return accent == 0x30a && letter == u'a' ? u'a' : 0;
}

/// Composed, with "oe" for "œ", "l" for "ł".
std::string in_plain_letters(const icu::UnicodeString& text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* whole = icu::Normalizer2::getNFCInstance(status);
  static const icu::Transliterator* const latin =
      icu::Transliterator::createInstance("Latin-ASCII", UTRANS_FORWARD, status);
  require(U_SUCCESS(status) != 0, "ICU folds no words: {}", u_errorName(status));
  icu::UnicodeString composed = whole->normalize(text, status);
  constexpr char16_t kFirst = 0xc0, kEnd = 0x250;  // Latin letters outside ASCII
  for (std::int32_t i = 0; i < composed.length(); ++i) {
    if (composed[i] < kFirst || composed[i] >= kEnd) continue;
    latin->transliterate(composed);
    break;
  }
  std::string out;
  composed.toUTF8String(out);
  return out;
}

/// The same for all ways to write a word: case, accents, wide and narrow, composed or not.
/// `spelled`: receives the word with "ae" for "ä", if it has such letters.
std::string folded(std::string_view text, std::string& spelled) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* fold = icu::Normalizer2::getNFKCCasefoldInstance(status);
  const icu::Normalizer2* parts = icu::Normalizer2::getNFDInstance(status);
  require(U_SUCCESS(status) != 0, "ICU folds no words: {}", u_errorName(status));
  const icu::UnicodeString wide =
      parts->normalize(fold->normalize(icu::UnicodeString::fromUTF8(icu::StringPiece(
                                           text.data(), static_cast<std::int32_t>(text.size()))),
                                       status),
                       status);
  icu::UnicodeString plain, with_letters;
  for (std::int32_t i = 0; i < wide.length(); ++i) {
    const char16_t c = wide[i];
    if (is_optional(c)) {
      const char16_t letter = i > 0 ? spelled_accent(wide[i - 1], c) : u'\0';
      if (letter != 0) with_letters += letter;
      continue;
    }
    plain += usual(c);
    if (c == 0xf8) with_letters += u'o';  // "oe" for "ø"
    with_letters += c == 0xf8 ? u'e' : usual(c);
  }
  if (with_letters != plain) spelled = in_plain_letters(with_letters);
  return in_plain_letters(plain);
}

/// A word of Arabic without its article and endings, by libstemmer.
std::string arabic_stem(std::string_view word) {
  using Stemmer = std::unique_ptr<sb_stemmer, decltype(&sb_stemmer_delete)>;
  thread_local const Stemmer stemmer(sb_stemmer_new("arabic", "UTF_8"), &sb_stemmer_delete);
  require(stemmer != nullptr, "libstemmer has no Arabic");
  constexpr std::string_view kAnd = "و", kSo = "ف", kThe = "ال";  // before the article
  const bool joined = word.starts_with(kAnd) || word.starts_with(kSo);
  if (joined && word.substr(kAnd.size()).starts_with(kThe)) word.remove_prefix(kAnd.size());
  const auto* out = sb_stemmer_stem(stemmer.get(), reinterpret_cast<const sb_symbol*>(word.data()),
                                    static_cast<int>(word.size()));
  return {reinterpret_cast<const char*>(out),
          static_cast<std::size_t>(sb_stemmer_length(stemmer.get()))};
}

/// A word that is folded without its article, and in Hebrew without other words written before it
/// if three letters stay; empty in other scripts.
std::string without_article(std::string_view word) {
  constexpr std::string_view kPrefixes = "הובלכמש";
  constexpr std::size_t kLetter = 2, kFewest = 3 * kLetter;  // bytes
  UChar32 first = 0;
  U8_GET_UNSAFE(word.data(), 0, first);
  const int script = u_getIntPropertyValue(first, UCHAR_SCRIPT);
  if (script == USCRIPT_ARABIC) return arabic_stem(word);
  if (script != USCRIPT_HEBREW) return "";
  while (word.size() > kFewest && kPrefixes.find(word.substr(0, kLetter)) != kPrefixes.npos) {
    word.remove_prefix(kLetter);
  }
  return std::string(word);
}

/// How a text of a script is divided into words.
enum class Script { none, words, characters, dictionary };

Script script_of(UChar32 c) {
  if (c < 0x80) return u_isalnum(c) != 0 ? Script::words : Script::none;
  if (c == 0x30fc || c == 0xff70) return Script::characters;  // a long vowel in kana
  switch (u_getIntPropertyValue(c, UCHAR_SCRIPT)) {
    case USCRIPT_HAN:
    case USCRIPT_HIRAGANA:
    case USCRIPT_KATAKANA:
    case USCRIPT_BOPOMOFO:
    case USCRIPT_YI:
    case USCRIPT_HANGUL:  // particles stand behind a word without a blank
      return u_isalnum(c) != 0 ? Script::characters : Script::none;
    default:
      break;
  }
  if (u_getIntPropertyValue(c, UCHAR_LINE_BREAK) == U_LB_COMPLEX_CONTEXT) return Script::dictionary;
  return u_isalnum(c) != 0 ? Script::words : Script::none;
}

/// Marks belong to the character before them.
bool is_mark(UChar32 c) {
  constexpr std::int32_t kJoins = U_GC_M_MASK | U_GC_CF_MASK;
  const bool jamo = c >= 0x1160 && c < 0x1200;  // parts of a Korean syllable, behind its first
  return (U_MASK(u_charType(c)) & kJoins) != 0 || c == 0xff9e || c == 0xff9f || jamo;
}

/// Words in their folded form.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {
    const auto size = static_cast<std::int32_t>(text.size());
    for (std::int32_t i = 0; i < size;) {
      const std::int32_t begin = i;
      UChar32 c = next(i);
      const Script script = c < 0 ? Script::none : script_of(c);
      if (script == Script::none) continue;
      while (i < size) {
        std::int32_t after = i;
        c = next(after);
        const bool joins = c >= 0 && is_mark(c);
        if (!joins && (script == Script::characters || c < 0 || script_of(c) != script)) break;
        i = after;
      }
      if (script == Script::dictionary) {
        add_by_dictionary(begin, i);
      } else {
        add(begin, i, script == Script::characters);
      }
    }
  }

  std::vector<Word> take() { return std::move(words_); }

 private:
  UChar32 next(std::int32_t& i) const {
    UChar32 c = 0;
    U8_NEXT(text_.data(), i, static_cast<std::int32_t>(text_.size()), c);
    return c;
  }

  void add(std::int32_t begin, std::int32_t end, bool character) {
    const std::string_view as_is =
        text_.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    Word word{{}, {}, static_cast<std::size_t>(begin), static_cast<std::size_t>(end)};
    if (std::ranges::all_of(as_is, [](char c) { return (c & 0x80) == 0; })) {
      for (char c : as_is) {
        word.text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      }
    } else {
      word.text = folded(as_is, word.other);
      if (word.other.empty() && !word.text.empty()) word.other = without_article(word.text);
      if (word.other == word.text) word.other.clear();
    }
    if (word.text.empty()) return;
    if (character && after_character_ == word.begin)
      words_.back().other = words_.back().text + word.text;
    after_character_ = character ? word.end : std::string_view::npos;
    words_.push_back(std::move(word));
  }

  /// Thai and its neighbours.
  void add_by_dictionary(std::int32_t begin, std::int32_t end) {
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<UText, decltype(&utext_close)> opened(
        utext_openUTF8(nullptr, text_.data() + begin, end - begin, &status), &utext_close);
    if (!breaks_)
      breaks_.reset(icu::BreakIterator::createWordInstance(icu::Locale::getRoot(), status));
    require(U_SUCCESS(status) != 0, "ICU finds no words: {}", u_errorName(status));
    breaks_->setText(opened.get(), status);
    std::int32_t from = 0;
    for (std::int32_t to = 0; (to = breaks_->next()) != icu::BreakIterator::DONE; from = to) {
      add(begin + from, begin + to, false);
    }
  }

  std::string_view text_;
  std::vector<Word> words_;
  std::size_t after_character_ = std::string_view::npos;  ///< where the last one ended
  std::unique_ptr<icu::BreakIterator> breaks_;
};

std::vector<Word> places_of_words(std::string_view text) { return Words(text).take(); }

/// Both forms of each word.
std::set<std::string> terms_of(std::string_view text) {
  std::set<std::string> out;
  for (Word& word : places_of_words(text)) {
    out.insert(std::move(word.text));
    if (!word.other.empty()) out.insert(std::move(word.other));
  }
  return out;
}

std::uint32_t number_of(std::string_view term) {
  Fnv hash;
  hash.add(std::as_bytes(std::span(term)));
  return static_cast<std::uint32_t>(hash.value() ^ (hash.value() >> 32));
}

/// The best sentence of a run, and what of the run follows it.
void choose_sentence(Found& found, std::string_view text, std::size_t begin, std::size_t end,
                     const std::map<std::string, double>& rarity) {
  double most_rare = 0;
  for (const Passage& sentence : sentences(text)) {
    if (sentence.end <= begin || sentence.begin >= end) continue;
    double rare = 0;
    for (const std::string& term :
         terms_of(text.substr(sentence.begin, sentence.end - sentence.begin))) {
      if (const auto wanted = rarity.find(term); wanted != rarity.end()) rare += wanted->second;
    }
    if (rare <= most_rare) continue;
    most_rare = rare;
    // Of a sentence that is longer than the run, what is in the run.
    const bool longer = sentence.end - sentence.begin > end - begin;
    found.begin = longer ? std::max(sentence.begin, begin) : sentence.begin;
    constexpr std::size_t kMark = 6;  // bytes of what ends a sentence
    const bool cut = longer && sentence.end > end + kMark;
    found.passage =
        text.substr(found.begin, (cut ? end : std::max(end, sentence.end)) - found.begin);
  }
}

}  // namespace

PassageIndex::PassageIndex(std::string_view text) {
  const std::vector<Word> all = places_of_words(text);
  for (std::size_t first = 0; first < all.size(); first += kStep) {
    const std::size_t end = std::min(first + kPassage, all.size());
    std::map<std::uint32_t, std::uint32_t> counts;
    for (std::size_t i = first; i < end; ++i) {
      ++counts[number_of(all[i].text)];
      if (!all[i].other.empty()) ++counts[number_of(all[i].other)];
    }
    for (const auto& [term, count] : counts) {
      places_.push_back({term, static_cast<std::uint32_t>(runs_.size()) & 0xffffff, count & 0xff});
    }
    runs_.push_back({all[first].begin, all[end - 1].end, end - first});
    if (end == all.size()) break;
  }
  std::ranges::stable_sort(places_, {}, &Occurrence::term);
  places_.shrink_to_fit();
}

std::vector<Found> find_passages(std::span<const IndexedText> texts, std::string_view question,
                                 std::size_t most) {
  double total = 0, words = 0;  // of all runs
  std::vector<std::vector<double>> scores;
  for (const IndexedText& text : texts) {
    total += static_cast<double>(text.index->runs_.size());
    for (const auto& run : text.index->runs_) words += static_cast<double>(run.words);
    scores.emplace_back(text.index->runs_.size());
  }
  std::map<std::string, double> rarity;
  for (const std::string& term : terms_of(question)) {
    const auto in = [number = number_of(term)](const IndexedText& text) {
      return std::ranges::equal_range(text.index->places_, number, {},
                                      &PassageIndex::Occurrence::term);
    };
    double having = 0;  // runs
    for (const IndexedText& text : texts) having += static_cast<double>(in(text).size());
    if (having == 0) continue;
    rarity[term] = std::log(1 + (total - having + 0.5) / (having + 0.5));
    for (std::size_t t = 0; t < texts.size(); ++t) {
      for (const auto& there : in(texts[t])) {
        constexpr double k1 = 1.2, b = 0.75;
        const double length =
            static_cast<double>(texts[t].index->runs_[there.run].words) * total / words;
        const double count = there.count;
        scores[t][there.run] +=
            rarity[term] * count * (k1 + 1) / (count + k1 * (1 - b + b * length));
      }
    }
  }
  std::vector<Found> best;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const auto top = std::ranges::max_element(scores[t]);
    if (top == scores[t].end() || *top == 0) continue;
    best.push_back({t, *top, static_cast<std::size_t>(top - scores[t].begin()), ""});
  }
  std::ranges::stable_sort(best, std::greater<>(), &Found::score);
  if (best.size() > most) best.resize(most);
  for (Found& found : best) {
    const auto& run = texts[found.text].index->runs_[found.begin];
    choose_sentence(found, texts[found.text].text, run.begin, run.end, rarity);
  }
  return best;
}

double missing_words(std::string_view text, std::string_view question, std::string_view answer) {
  const std::set<std::string> asked = terms_of(question), there = terms_of(text);
  const auto has = [](const std::set<std::string>& terms, const Word& word) {
    return terms.contains(word.text) || (!word.other.empty() && terms.contains(word.other));
  };
  const auto is_yes_or_no = [&](const Word& word) {
    constexpr std::size_t kLongest = 6;  // bytes: three letters of other scripts
    const bool number = word.text.find_first_of("0123456789") != std::string::npos;
    const bool ends =
        word.end == answer.size() || answer.find_first_of(",.!", word.end) == word.end;
    return word.begin == 0 && word.end <= kLongest && !number && ends;
  };
  std::set<std::string> all, missing;
  for (const Word& word : places_of_words(answer)) {
    if (has(asked, word) || is_yes_or_no(word)) continue;
    all.insert(word.text);
    if (!has(there, word)) missing.insert(word.text);
  }
  return all.empty() ? 0 : static_cast<double>(missing.size()) / static_cast<double>(all.size());
}

double words_near(std::string_view text, std::string_view question, std::string_view answer) {
  std::vector<std::set<std::string>> all;
  for (const Passage& one : sentences(text)) {
    all.push_back(terms_of(text.substr(one.begin, one.end - one.begin)));
  }
  const std::set<std::string> asked = terms_of(question);
  std::map<std::string, double> wanted, own;  // rarity of the question's words, of the answer's own
  const auto count = static_cast<double>(all.size());
  const auto rarity = [&](const std::string& term) {
    const auto having = static_cast<double>(
        std::ranges::count_if(all, [&](const auto& terms) { return terms.contains(term); }));
    return std::pair(having, std::log(1 + (count - having + 0.5) / (having + 0.5)));
  };
  double all_wanted = 0, all_own = 0;
  for (const std::string& term : asked) all_wanted += wanted[term] = rarity(term).second;
  for (const std::string& term : terms_of(answer)) {
    const auto [having, rare] = rarity(term);
    if (having > 0 && !asked.contains(term)) all_own += own[term] = rare;
  }
  double most = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::set<std::string> here;
    for (std::size_t k = i == 0 ? 0 : i - 1; k < std::min(i + 2, all.size()); ++k) {
      here.insert(all[k].begin(), all[k].end());
    }
    const auto sum_of = [&](const std::map<std::string, double>& terms) {
      double sum = 0;
      for (const auto& [term, rare] : terms) sum += here.contains(term) ? rare : 0;
      return sum;
    };
    if (2 * sum_of(own) >= all_own) most = std::max(most, sum_of(wanted));
  }
  return all_wanted > 0 ? most / all_wanted : 0;
}

}  // namespace ballast
