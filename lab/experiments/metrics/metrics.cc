#include "experiments/metrics/metrics.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "experiments/metrics/python_text.h"
#include "formats/json.h"

namespace ballast {
namespace {

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

/// Articles as whole words, with everything around them left where it is.
std::u32string without_articles(std::u32string_view text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_word_character(text[end])) ++end;
    const std::u32string_view word = text.substr(i, end - i);
    if (word == U"a" || word == U"an" || word == U"the") {
      out += U' ';
    } else {
      out += word;
    }
    if (end < text.size()) out += text[end++];
    i = end;
  }
  return out;
}

double fraction_equal(const std::vector<std::string>& numbers, std::string_view truth) {
  if (numbers.empty()) return 0.0;
  const auto right = std::count(numbers.begin(), numbers.end(), truth);
  return static_cast<double>(right) / static_cast<double>(numbers.size());
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// RULER's cleaning of a prediction: control characters become line ends, then the ends go.
std::string clean_prediction(std::string_view text) {
  std::string out = strip(text);
  for (char& c : out) c = static_cast<unsigned char>(c) < 0x20 ? '\n' : c;
  return to_lower(strip(out));
}

std::size_t count_matches(std::string_view prediction, std::span<const std::string> references) {
  const std::string clean = clean_prediction(prediction);
  return static_cast<std::size_t>(
      std::count_if(references.begin(), references.end(),
                    [&](const std::string& r) { return contains(clean, to_lower(r)); }));
}

}  // namespace

std::string normalize_answer(std::string_view text) {
  std::string lower = to_lower(text);
  std::erase_if(lower, is_ascii_punctuation);
  std::string out;
  for (const std::string& word :
       split_whitespace(to_utf8(without_articles(to_code_points(lower))))) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

double qa_f1(std::string_view prediction, std::string_view truth) {
  const auto said = split_whitespace(normalize_answer(prediction));
  const auto expected = split_whitespace(normalize_answer(truth));
  std::map<std::string, std::size_t> left;
  for (const std::string& word : expected) ++left[word];
  std::size_t same = 0;
  for (const std::string& word : said) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++same;
  }
  if (same == 0) return 0.0;
  const double precision = static_cast<double>(same) / static_cast<double>(said.size());
  const double recall = static_cast<double>(same) / static_cast<double>(expected.size());
  return 2 * precision * recall / (precision + recall);
}

double classification_score(std::string_view prediction, std::string_view truth,
                            std::span<const std::string> classes) {
  std::vector<std::string> named;
  for (const std::string& name : classes) {
    if (contains(prediction, name)) named.push_back(name);
  }
  // The official loop removes from the list that it walks through, so what follows a removed class
  // is not looked at.
  for (std::size_t i = 0; i < named.size(); ++i) {
    const std::string name = named[i];
    if (!contains(truth, name) || name == truth) continue;
    named.erase(std::find(named.begin(), named.end(), name));
  }
  if (std::find(named.begin(), named.end(), truth) == named.end()) return 0.0;
  return 1.0 / static_cast<double>(named.size());
}

double retrieval_score(std::string_view prediction, std::string_view truth) {
  constexpr std::string_view kMark = "Paragraph ";
  for (std::size_t at = truth.find(kMark); at != std::string_view::npos;
       at = truth.find(kMark, at + 1)) {
    const std::string_view rest = truth.substr(at + kMark.size());
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits != 0) return fraction_equal(find_numbers(prediction), rest.substr(0, digits));
  }
  fail("an answer of paragraph retrieval is \"{}\"; expected \"Paragraph\" and a number",
       printable(truth));
}

double count_score(std::string_view prediction, std::string_view truth) {
  return fraction_equal(find_numbers(prediction), truth);
}

double code_similarity(std::string_view prediction, std::string_view truth) {
  prediction.remove_prefix(std::min(prediction.find_first_not_of('\n'), prediction.size()));
  for (const std::string& line : split_at(prediction, '\n')) {
    if (!contains(line, "`") && !contains(line, "#") && !contains(line, "//")) {
      return text_ratio(line, truth);
    }
  }
  return text_ratio("", truth);
}

std::optional<std::string> last_number(std::string_view answer) {
  const auto numbers = find_numbers(answer);
  if (numbers.empty()) return std::nullopt;
  const std::string last = ascii_digits(numbers.back());
  return last.substr(std::min(last.find_first_not_of('0'), last.size() - 1));
}

bool line_is_right(std::string_view answer, std::string_view expected) {
  const auto said = last_number(answer);
  return said.has_value() && said == last_number(expected);
}

double string_match_all(std::string_view prediction, std::span<const std::string> references) {
  require(!references.empty(), "string match: there is no reference");
  return static_cast<double>(count_matches(prediction, references)) /
         static_cast<double>(references.size());
}

double string_match_part(std::string_view prediction, std::span<const std::string> references) {
  require(!references.empty(), "string match: there is no reference");
  return count_matches(prediction, references) != 0 ? 1.0 : 0.0;
}

bool call_is_right(std::string_view answer, std::string_view expected) {
  const auto call_in = [](std::string_view text) {
    std::istringstream in(std::string(text.substr(std::min(text.find('{'), text.size()))));
    SortedJson found;
    try {
      in >> found;  // leaves what follows
    } catch (const SortedJson::exception&) {
      found = SortedJson::object();
    }
    return std::pair(found.value("name", SortedJson()), found.value("arguments", SortedJson()));
  };
  return call_in(answer) == call_in(expected);
}

std::size_t best_choice(std::span<const double> log_likelihoods) {
  require(!log_likelihoods.empty(), "there is no choice to score");
  return static_cast<std::size_t>(std::max_element(log_likelihoods.begin(), log_likelihoods.end()) -
                                  log_likelihoods.begin());
}

std::size_t best_choice_by_length(std::span<const double> log_likelihoods,
                                  std::span<const std::string> choices) {
  std::vector<double> scaled(log_likelihoods.begin(), log_likelihoods.end());
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const std::size_t length = count_code_points(choices[i]);
    require(length != 0, "choice {} is empty", i + 1);
    scaled[i] /= static_cast<double>(length);
  }
  return best_choice(scaled);
}

}  // namespace ballast
