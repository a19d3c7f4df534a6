#include "text/answer/answer_text.h"

#include <algorithm>
#include <utility>

namespace ballast {

AnswerText::AnswerText(const Tokenizer& tokenizer, AnswerOptions options)
    : tokenizer_(tokenizer),
      split_(options.split_thoughts),
      stream_(tokenizer, {.special = options.chat && writes_channels(tokenizer),
                          .text_start = options.text_start}),
      stop_(std::move(options.stop)) {
  const auto show = [&](std::span<const std::string_view> marks) {
    for (const std::string_view mark : marks) {
      const Token token = tokenizer.find(mark);
      if (token != kNoToken && tokenizer.is_special(token)) shown_.push_back(token);
    }
  };
  if (options.chat) {
    if (writes_channels(tokenizer)) channels_.emplace();
    thoughts_.emplace(options.thoughts_open, !split_);
    show(ThoughtReader::kMarks);
  }
  if (!options.functions.empty()) {
    calls_.emplace(std::move(options.functions));
    show(ToolCallReader::kMarks);
  }
}

bool AnswerText::shows(Token token) const {
  return !channels_ && std::ranges::find(shown_, token) != shown_.end();
}

AnswerText::Parts AnswerText::push(Token token) {
  if (!shows(token)) return read(stream_.push(token), false);
  return read(stream_.flush() + tokenizer_.decode({&token, 1}, {.special = true}), false);
}

AnswerText::Parts AnswerText::push(std::string_view piece) {
  return read(std::string(piece), false);
}

AnswerText::Parts AnswerText::finish() { return read(stream_.flush(), true); }

AnswerText::Parts AnswerText::read(std::string text, bool ends) {
  Parts out;
  if (stopped()) return out;
  if (channels_) {
    text = channels_->push(text);
    if (ends) text += channels_->finish();
  }
  if (thoughts_) {
    ThoughtReader::Parts parts = thoughts_->push(text);
    if (ends) {
      const ThoughtReader::Parts rest = thoughts_->finish();
      parts.thoughts += rest.thoughts;
      parts.answer += rest.answer;
    }
    out.thoughts = std::move(parts.thoughts);
    text = std::move(parts.answer);
  }
  if (calls_) {
    text = calls_->push(text, out.calls);
    if (ends) text += calls_->finish(out.calls);
  }
  out.text = stop_.push(text);
  if (ends && !stopped()) out.text += stop_.flush();
  if (!split_) out.text.insert(0, std::exchange(out.thoughts, {}));
  return out;
}

bool ends_within_thoughts(const Tokenizer& tokenizer, std::span<const Token> prompt) {
  constexpr std::size_t kTokens = 16;  // of the tag and blanks
  std::string end = tokenizer.decode(prompt.last(std::min(prompt.size(), kTokens)),
                                     {.special = true, .text_start = false});
  end.erase(end.find_last_not_of(" \t\r\n") + 1);
  return end.ends_with("<think>");
}

}  // namespace ballast
