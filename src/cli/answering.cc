#include "cli/answering.h"

#include <algorithm>
#include <set>

#include "cli/command.h"

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
