#include "documents/passages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <numeric>
#include <optional>

#include "base/fail.h"
#include "documents/document.h"

namespace ballast {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f";
constexpr std::size_t kNone = std::string_view::npos;
/// From this length on a line may be one of prose that a margin has broken.
constexpr std::size_t kProse = 40;
/// Bytes of a sentence; a longer one is several lines.
constexpr std::size_t kLongest = 1000;

/// The line that begins at `at`, without its end.
std::string_view line_at(std::string_view text, std::size_t at) {
  return text.substr(at, std::min(text.find('\n', at), text.size()) - at);
}

/// Whether a line begins an item of a list, a heading, a row of a table or a quotation.
bool begins_anew(std::string_view line) {
  const std::size_t at = line.find_first_not_of(" \t");
  if (at == std::string_view::npos) return true;
  line.remove_prefix(at);
  if (line.find_first_of("-*#|>=+") == 0 || line.starts_with("•")) return true;
  const std::size_t digits = line.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string_view::npos &&
         (line[digits] == '.' || line[digits] == ')');
}

/// Whether a line's end may be within a sentence.
bool goes_on(std::string_view line) {
  const std::size_t last = line.find_last_not_of(kBlanks);
  return last != std::string_view::npos && std::string_view(".!?:;").find(line[last]) == kNone;
}

/// Whether lines one below the other are prose that a margin has broken: most of those that go on
/// would not have had room for the first word of the next. Lines of a PDF are not equally long in
/// letters.
bool is_prose(std::span<const std::string_view> lines) {
  constexpr double kNearly = 0.95, kMost = 0.6;
  if (lines.size() < 2) return false;
  const std::size_t margin = std::ranges::max(lines, {}, &std::string_view::size).size();
  if (margin < kProse) return false;
  std::size_t full = 0, all = 0;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    if (!goes_on(lines[i])) continue;
    ++all;
    const std::size_t word = std::min(lines[i + 1].find(' '), lines[i + 1].size());
    const auto needed = static_cast<double>(lines[i].size() + 1 + word);
    full += needed >= kNearly * static_cast<double>(margin) ? 1u : 0u;
  }
  return static_cast<double>(full) >= kMost * static_cast<double>(all);
}

/// The text with a space in place of each line end within prose.
std::string without_margins(std::string_view text) {
  std::string out(text);
  std::vector<std::string_view> lines;
  const auto end_block = [&] {
    const bool prose = is_prose(lines);
    for (std::size_t i = 0; prose && i + 1 < lines.size(); ++i) {
      if (!goes_on(lines[i])) continue;
      out[static_cast<std::size_t>(lines[i].data() - text.data()) + lines[i].size()] = ' ';
    }
    lines.clear();
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string_view line = line_at(text, begin);
    if (!lines.empty() && begins_anew(line)) end_block();
    if (!is_blank(line)) lines.push_back(line);
    begin += line.size() + 1;
  }
  end_block();
  return out;
}

Passage without_blanks(std::string_view text, Passage part) {
  while (part.begin < part.end && kBlanks.find(text[part.begin]) != kBlanks.npos) ++part.begin;
  while (part.begin < part.end && kBlanks.find(text[part.end - 1]) != kBlanks.npos) --part.end;
  return part;
}

std::string in_one_line(std::string_view text) {
  std::string out;
  bool blank = false;
  for (char c : text) {
    if (kBlanks.find(c) != std::string_view::npos) {
      blank = true;
      continue;
    }
    if (blank) out += ' ';
    blank = false;
    out += c;
  }
  return out;
}

}  // namespace

std::vector<Passage> sentences(std::string_view text) {
  const std::string flowing = without_margins(text);
  UErrorCode status = U_ZERO_ERROR;
  std::unique_ptr<UText, decltype(&utext_close)> opened(
      utext_openUTF8(nullptr, flowing.data(), static_cast<std::int64_t>(flowing.size()), &status),
      &utext_close);
  // Abbreviations are English; the rules themselves know all scripts.
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createSentenceInstance(icu::Locale("en@ss=standard"), status));
  require(U_SUCCESS(status) != 0, "ICU finds no sentences: {}", u_errorName(status));
  breaks->setText(opened.get(), status);
  require(U_SUCCESS(status) != 0, "ICU finds no sentences: {}", u_errorName(status));
  std::vector<Passage> out;
  for (std::int32_t begin = breaks->first(), end = breaks->next(); end != icu::BreakIterator::DONE;
       begin = end, end = breaks->next()) {
    const Passage sentence =
        without_blanks(text, {static_cast<std::size_t>(begin), static_cast<std::size_t>(end)});
    if (sentence.end - sentence.begin <= kLongest) {
      if (sentence.begin < sentence.end) out.push_back(sentence);
      continue;
    }
    for (std::size_t at = sentence.begin; at < sentence.end;) {  // a list without full stops
      const std::size_t next = std::min(text.find('\n', at), sentence.end - 1) + 1;
      const Passage line = without_blanks(text, {at, next});
      if (line.begin < line.end) out.push_back(line);
      at = next;
    }
  }
  return out;
}

Place place_of(std::string_view text, std::size_t at) {
  Place place;
  at = std::min(at, text.size());
  std::size_t first = 0;  // line of the document or page
  for (std::size_t begin = text.rfind('\n', at == 0 ? 0 : at - 1) + 1;;) {
    if (const std::optional<DocumentPart> part = part_named(text, begin)) {
      place.document = part->name;
      place.page = part->page;
      first = begin + line_at(text, begin).size() + std::string_view("\n\n").size();
      break;
    }
    if (begin == 0) break;
    begin = begin < 2 ? 0 : text.rfind('\n', begin - 2) + 1;
  }
  if (first > at) first = at;
  place.line = 1 + static_cast<std::size_t>(std::count(text.begin() + static_cast<long>(first),
                                                       text.begin() + static_cast<long>(at), '\n'));
  return place;
}

bool Place::has_line() const { return keeps_lines(document); }

std::string to_string(const Place& place) {
  std::vector<std::string> parts;
  if (!place.document.empty()) parts.push_back(place.document);
  if (place.page > 0) parts.push_back(fmt::format("page {}", place.page));
  if (place.has_line()) parts.push_back(fmt::format("line {}", place.line));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<Citation> cite(const Tokenizer& tokenizer, std::span<const Token> tokens,
                           std::size_t before, std::span<const float> attention) {
  constexpr std::size_t kMost = 3;
  constexpr float kOfFirst = 0.2f;
  constexpr float kLeast = 0.02f;  // of the heads' attention, which is 1
  std::string text;
  std::vector<std::size_t> begins;
  for (const Token& token : tokens) {
    begins.push_back(text.size());
    text += tokenizer.decode({&token, 1}, {.special = true, .text_start = false});
  }
  before = std::min(before, text.size());
  const std::string_view context = std::string_view(text).substr(before);
  const std::vector<Passage> all = sentences(context);
  std::vector<Citation> found(all.size());
  std::size_t at = 0;
  for (std::size_t t = 0; t < begins.size() && t < attention.size(); ++t) {
    // A token begins with the blank before its word.
    const std::size_t word = std::min(text.find_first_not_of(kBlanks, begins[t]), text.size());
    if (word < before || tokenizer.is_special(tokens[t])) continue;
    while (at < all.size() && all[at].end <= word - before) ++at;
    if (at == all.size()) break;
    if (word - before < all[at].begin || part_named(context, all[at].begin)) continue;
    Citation& sentence = found[at];
    const std::size_t end = t + 1 < begins.size() ? begins[t + 1] : text.size();
    if (word < end) {  // not a blank alone
      if (sentence.end_token == 0) sentence.first_token = t;
      sentence.end_token = t + 1;
    }
    sentence.share += attention[t];
  }
  float sum = 0;
  for (const Citation& sentence : found) sum += sentence.share;
  if (sum < kLeast) return {};
  std::vector<std::size_t> order(found.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return found[i].share; });
  std::vector<Citation> out;
  for (std::size_t i : order) {
    if (out.size() == kMost || found[i].share < kOfFirst * found[order[0]].share) break;
    const auto [begin, end] = all[i];
    out.push_back(found[i]);
    out.back().part = all[i];
    out.back().text = in_one_line(context.substr(begin, end - begin));
    out.back().place = place_of(context, begin);
    out.back().share /= sum;
  }
  return out;
}

}  // namespace ballast
