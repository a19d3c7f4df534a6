#include "serve/grammar/token_texts.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace ballast::serve {
namespace {

constexpr std::size_t kMasks = 64;  ///< kept; one of 150,000 tokens takes 19 KB

}  // namespace

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : texts_(tokenizer.size()) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (tokenizer.is_end(token)) ends_.push_back(i);
    if (tokenizer.is_special(token) || tokenizer.is_end(token)) continue;
    texts_[i] = tokenizer.decode({&token, 1}, {.special = false, .text_start = false});
    longest_ = std::max(longest_, static_cast<std::uint32_t>(texts_[i].size()));
    if (!texts_[i].empty()) sorted_.push_back(static_cast<std::uint32_t>(i));
  }
  std::ranges::sort(sorted_, {}, [&](std::uint32_t i) -> const std::string& { return texts_[i]; });
  std::string_view before;
  for (const std::uint32_t i : sorted_) {
    const std::string_view text = texts_[i];
    common_.push_back(
        static_cast<std::uint32_t>(std::ranges::mismatch(text, before).in1 - text.begin()));
    before = text;
  }
}

std::vector<bool> TokenTexts::taken(GrammarStates& states, GrammarStates::State state) const {
  std::vector<bool> out(texts_.size());
  // at[d]: after d bytes of the text; a text starts where it departs from the one before.
  std::vector<GrammarStates::State> at(std::size_t{longest_} + 1, state);
  std::size_t good = 0;  // bytes of the text before that were taken
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    if (common_[i] > good) continue;  // the byte at which the last one failed is in this one, too
    const std::string& text = texts_[sorted_[i]];
    good = common_[i];
    while (good < text.size()) {
      at[good + 1] = states.next(at[good], text[good]);
      if (at[good + 1] == GrammarStates::kDead) break;
      ++good;
    }
    out[sorted_[i]] = good == text.size();
  }
  return out;
}

std::size_t TokenTexts::mask(const GrammarReader& reader, std::span<float> logits) const {
  GrammarStates& states = reader.states();
  states.allow_work();
  const GrammarStates::State state = states.like(reader.state(), longest_);
  auto at = states.masks.find(state);
  if (at == states.masks.end()) {
    if (states.masks.size() == kMasks) states.masks.clear();
    at = states.masks.emplace(state, taken(states, state)).first;
  }
  std::vector<bool> takes = at->second;
  if (reader.may_end()) {
    for (const std::size_t end : ends_) takes[end] = true;
  }
  std::size_t left = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i < takes.size() && takes[i]) {
      ++left;
    } else {
      logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  return left;
}

}  // namespace ballast::serve
