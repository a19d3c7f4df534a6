#include "text/tokenizer/splitter.h"

#include <algorithm>
#include <ctime>

#include "base/fail.h"
#include "base/interruption.h"
#include "base/printable.h"
#include "text/tokenizer/utf8.h"

namespace ballast {

namespace {

// Of this thread's own work, so that other load of the machine does not matter. In seconds.
double processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// For an expression's setMatchCallback(): true to go on.
UBool goes_on(const void* deadline, std::int32_t) {
  return !static_cast<const Splitter::Deadline*>(deadline)->passed();
}

// A hostile expression could backtrack for ever. ICU counts backtracking steps in units of 10,000;
// this limit allows 100 steps a character, real expressions need fewer than 10.
std::int32_t time_limit(std::int32_t length) { return 10 + length / 100; }

// Those of models have up to 1 KB altogether. A step may be as long as the expression.
constexpr std::size_t kLongestPatterns = std::size_t{16} << 10;

icu::UnicodeString to_utf16(std::string_view text) {
  icu::UnicodeString out(static_cast<std::int32_t>(text.size()), UChar32{0}, 0);
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    out.append(static_cast<UChar32>(c.code));
    i += c.length;
  }
  return out;
}

// ICU keeps a backtracking point for each repetition of \s, whose number it limits, but not of a
// set, so that runs of any length can be matched: [\s] is written for \s.
std::string with_sets(const std::string& pattern) {
  std::string out;
  int depth = 0;  // within brackets
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      depth += c == '[' ? 1 : c == ']' && depth > 0 ? -1 : 0;
      out.push_back(c);
      continue;
    }
    const char escaped = pattern[++i];
    if (depth == 0 && escaped == 's') {
      out += "[\\s]";
    } else if (depth == 0 && escaped == 'S') {
      out += "[^\\s]";
    } else {
      out += {c, escaped};
    }
  }
  return out;
}

// Splits words by one more expression. Ends of words are UTF-16 offsets. `open`: the text goes on
// after the last word, so that matches which touch its end are not decided; what follows the last
// decided cut is left out.
std::vector<std::int32_t> cut(const std::vector<std::int32_t>& ends, bool open,
                              const Splitter::Deadline& deadline, icu::RegexMatcher& matcher,
                              UErrorCode& status) {
  std::vector<std::int32_t> finer;
  finer.reserve(ends.size());
  std::int32_t begin = 0;
  // Steps that do not backtrack are not counted, and each may be as long as the text. ICU calls
  // back after 10,000 steps of one search; there may be many searches, of this text or others, with
  // less.
  unsigned searches = 0;
  const auto look = [&] {
    if (searches++ % 32 == 0 && deadline.passed()) status = U_REGEX_STOPPED_BY_CALLER;
  };
  matcher.setMatchCallback(goes_on, &deadline, status);
  for (std::int32_t end : ends) {
    matcher.region(begin, end, status);
    matcher.setTimeLimit(time_limit(end - begin), status);
    std::int32_t last = begin;
    look();
    while (U_SUCCESS(status) && matcher.find(status) && !(open && matcher.hitEnd())) {
      look();
      for (std::int32_t cut : {matcher.start(status), matcher.end(status)}) {
        if (cut > last) finer.push_back(last = cut);
      }
    }
    if (end > last && !open) finer.push_back(end);
    begin = end;
  }
  return finer;
}

// Whether what precedes a position can decide a match there.
bool looks_back(std::string_view pattern) {
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '^' && (i == 0 || pattern[i - 1] != '[')) return true;
    if (pattern.substr(i).starts_with("(?<")) return true;
    if (pattern[i] == '\\' && ++i < pattern.size() &&
        std::string_view("AbBGXz").find(pattern[i]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// The length of the longest prefix of at most `most` bytes that splits no character.
std::size_t whole_characters(std::string_view text, std::size_t most) {
  if (most >= text.size()) return text.size();
  // A character has at most four bytes; its first is none of 10xxxxxx.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, most); ++back) {
    const auto byte = static_cast<unsigned char>(text[most - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t begin = most - back;
    return begin + next_utf8(text, begin).length > most ? begin : most;
  }
  return most;
}

}  // namespace

Splitter::Deadline::Deadline(std::size_t bytes, std::size_t longest)
    : end_(processor_time() + 1.0 + 1e-6 * static_cast<double>(bytes)), longest_(longest) {}

bool Splitter::Deadline::passed() const { return processor_time() > end_ || Interruption::due(); }

void Splitter::Deadline::check_word(std::size_t bytes) const {
  Interruption::check();
  require(bytes <= longest_, ErrorCode::over_limit,
          "the text has a word of more than {} bytes, such as a run of blanks; shorten it",
          longest_);
}

Splitter::Splitter(const std::vector<std::string>& patterns, const std::string& source)
    : source_(source), looks_back_(!patterns.empty() && looks_back(patterns.front())) {
  std::size_t size = 0;
  for (const std::string& pattern : patterns) {
    size += pattern.size();
    require(size <= kLongestPatterns, ErrorCode::bad_file,
            "{}: the pre-tokeniser's expressions have over {} bytes; those of models have up to "
            "1,000",
            source, kLongestPatterns);
    UErrorCode status = U_ZERO_ERROR;
    UParseError where;
    std::unique_ptr<icu::RegexPattern> compiled(icu::RegexPattern::compile(
        icu::UnicodeString::fromUTF8(with_sets(pattern)), 0, where, status));
    require(U_SUCCESS(status), "{}: the pre-tokeniser's expression '{}' is not valid ({})", source,
            printable(pattern), u_errorName(status));
    patterns_.push_back(std::move(compiled));
  }
}

void Splitter::split(std::string_view text, const Deadline& deadline,
                     const std::function<void(std::string_view)>& word, std::size_t window) const {
  if (text.empty()) return;
  if (patterns_.empty()) return word(text);
  if (looks_back_) window = text.size();
  for (std::size_t size = window; !text.empty();) {
    const std::size_t taken = whole_characters(text, size);
    const std::size_t done = taken == 0 ? 0 : split_part(text, taken, deadline, word);
    if (done == 0 && !looks_back_) deadline.check_word(taken);
    text.remove_prefix(done);
    // A word longer than the window.
    size = done == 0 ? 2 * size + 1 : window;
  }
}

std::size_t Splitter::split_part(std::string_view text, std::size_t taken, const Deadline& deadline,
                                 const std::function<void(std::string_view)>& word) const {
  const icu::UnicodeString wide = to_utf16(text.substr(0, taken));
  std::vector<std::int32_t> ends = {wide.length()};
  UErrorCode status = U_ZERO_ERROR;
  bool open = taken < text.size();
  for (const auto& pattern : patterns_) {
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(wide, status));
    if (U_SUCCESS(status)) ends = cut(ends, open, deadline, *matcher, status);
    Interruption::check();
    require(
        U_SUCCESS(status), "{}: the pre-tokeniser's expression '{}' fails on this text ({})",
        source_,
        [&] {
          std::string utf8;
          return printable(pattern->pattern().toUTF8String(utf8));
        }(),
        u_errorName(status));
    open = false;  // the later ones see whole words
  }
  std::size_t begin = 0;
  std::size_t position = 0;
  std::int32_t unit = 0;
  for (std::int32_t end : ends) {
    for (; unit < end;) {
      const Utf8Char c = next_utf8(text, position);
      position += c.length;
      unit += c.code > 0xffff ? 2 : 1;
    }
    // A word cannot end between the halves of a surrogate pair, so position > begin.
    word(text.substr(begin, position - begin));
    begin = position;
  }
  return begin;
}

}  // namespace ballast
