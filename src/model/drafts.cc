#include "model/drafts.h"

#include <algorithm>

namespace ballast {

void PromptLookup::add(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    // The runs that end here have a token behind them now.
    for (std::size_t n = kShortest; n <= std::min(kLongest, text_.size()); ++n) {
      ends_[n - kShortest][hash(text_.size(), n)] = text_.size();
    }
    text_.push_back(token);
  }
}

std::uint64_t PromptLookup::hash(std::size_t end, std::size_t length) const {
  std::uint64_t out = 0;
  for (std::size_t i = end - length; i < end; ++i) {
    out = (out ^ static_cast<std::uint32_t>(text_[i])) * 0x9E3779B97F4A7C15u;
    out ^= out >> 29;
  }
  return out;
}

std::span<const Token> PromptLookup::next(std::size_t most) const {
  const std::span<const Token> text = text_;
  for (std::size_t n = std::min(kLongest, text.size()); n >= kShortest; --n) {
    const auto& ends = ends_[n - kShortest];
    const auto found = ends.find(hash(text.size(), n));
    if (found == ends.end()) continue;
    const std::size_t end = found->second;
    if (!std::ranges::equal(text.subspan(end - n, n), text.last(n))) continue;
    return text.subspan(end, std::min(most, text.size() - end));
  }
  return {};
}

std::size_t DraftLength::next() {
  if (plain_ == 0) return 0;
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  return length_;
}

void DraftLength::plain(double seconds) {
  // The least, slowly forgotten: other programs' work makes passes longer, never shorter.
  plain_ = plain_ == 0 ? seconds : std::min(seconds, 1.02 * plain_);
}

void DraftLength::passed(std::size_t drafted, std::size_t accepted, double seconds) {
  constexpr double kKept = 0.9, kMostLost = 3;  // passes without a draft
  tokens_ = kKept * tokens_ + static_cast<double>(accepted + 1);
  seconds_ = kKept * seconds_ + seconds;
  length_ = accepted == drafted ? std::min(kMost, 2 * drafted) : accepted + 1;
  const double lost = seconds_ - plain_ * tokens_;
  if (lost <= 0) next_pause_ = kPause;
  if (lost <= kMostLost * plain_) return;
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
  tokens_ = seconds_ = 0;
  length_ = 3;
}

}  // namespace ballast
