#include "cli/answering.h"

#include <unicode/utf8.h>

#include <algorithm>
#include <set>

#include "base/os/files.h"
#include "cli/command.h"
#include "report/table.h"

namespace ballast::cli {

bool Repetition::add(Token token) {
  bool repeats = false;
  const std::size_t n = tokens_.size();
  for (std::size_t p = 1; p <= std::min(kLongest, n); ++p) {
    same_[p] = tokens_[n - p] == token ? same_[p] + 1 : 0;
    repeats = repeats || same_[p] >= std::max(kLeast, 3 * p);
  }
  tokens_.push_back(token);
  return repeats;
}

bool Repetition::add(std::string_view text) {
  bool repeats = false;
  for (char c : text) {
    if (c != '\n') {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0;
      if (letter) line_ += c;
      continue;
    }
    if (!line_.empty()) {
      lines_.push_back(line_);
      if (lines_.size() > kLines) lines_.pop_front();
      const std::set<std::string_view> distinct(lines_.begin(), lines_.end());
      const bool alike = lines_.size() == kLines && distinct.size() <= 2;
      repeats = repeats || (alike && std::ranges::any_of(distinct, [](std::string_view line) {
                              return line.size() >= kLongLine;
                            }));
    }
    line_.clear();
  }
  return repeats;
}

std::string WordWrap::push(std::string_view text) {
  if (width_ == 0) return std::string(text);
  std::string out;
  const auto size = static_cast<std::int32_t>(text.size());
  for (std::int32_t at = 0; at < size;) {
    const std::int32_t begin = at;
    UChar32 c = 0;
    U8_NEXT(text.data(), at, size, c);
    const std::string_view one =
        text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(at - begin));
    if (c == ' ') {
      flush(out);
      blanks_ += ' ';
      may_break_ = true;
      continue;
    }
    if (c == '\n') {
      flush(out);
      out += '\n';
      blanks_.clear();
      column_ = 0;
      continue;
    }
    word_ += one;
    // Chinese and Japanese have no blanks, and may break behind every character.
    const bool wide = display_width(one) == 2;
    if (!wide && display_width(word_) < width_) continue;
    flush(out);
    may_break_ = wide;
  }
  return out;
}

void WordWrap::flush(std::string& out) {
  if (word_.empty()) return;
  const std::size_t columns = display_width(word_);
  if (may_break_ && column_ > 0 && column_ + blanks_.size() + columns > width_) {
    out += '\n';
    column_ = 0;
  } else {
    out += blanks_;
    column_ += blanks_.size();
  }
  out += word_;
  column_ += columns;
  blanks_.clear();
  word_.clear();
  may_break_ = false;
}

std::string WordWrap::finish() {
  std::string out;
  flush(out);
  return out;
}

namespace {

/// Columns of the terminal that standard output is; 0: none that is known.
std::size_t output_columns() {
  const std::size_t columns = terminal_columns();
  return columns >= 20 ? columns : 0;
}

}  // namespace

AnswerOutput::AnswerOutput() : words_(output_columns()) {}

void AnswerOutput::add(std::string_view text) {
  print(words_.push(text));
  flush_output();
  if (!text.empty()) open_ = !text.ends_with('\n');
}

void AnswerOutput::finish() {
  print(words_.finish());
  if (open_) print("\n");
}

Answered generate_answer(Session& session, const GenerateOptions& options, bool cut,
                         const std::function<bool(std::string_view)>& on_text) {
  Generation generation = session.generate(options);
  Answered out;
  Repetition repetition;
  std::string text;
  std::size_t seen = 0;
  while (generation.step(text)) {
    if (!text.empty() && !on_text(text)) generation.cancel();
    bool again = repetition.add(text);
    const std::vector<GeneratedToken>& tokens = generation.result().tokens;
    for (; seen < tokens.size(); ++seen) {
      again = repetition.add(tokens[seen].chosen.token) || again;
    }
    if (!again || !cut || generation.done()) continue;
    out.repeats = true;
    generation.cancel();
  }
  session.take_in(generation);
  out.made = generation.result();
  return out;
}

void tell_if_repeats(const Answered& answer) {
  if (!answer.repeats) return;
  flush_output();
  tell(
      "note: the answer repeated itself and was cut; --repeat-penalty 1.1 or a --temperature may "
      "help");
}

}  // namespace ballast::cli
