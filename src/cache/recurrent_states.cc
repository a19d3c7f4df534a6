#include "ballast/recurrent_states.h"

#include <algorithm>
#include <limits>

#include "base/checks.h"
#include "base/fail.h"

namespace ballast {

RecurrentStates::RecurrentStates(std::span<const std::size_t> sizes) : tokens_(sizes.size()) {
  for (std::size_t size : sizes) now_.emplace_back(size);
}

std::span<float> RecurrentStates::state(std::size_t layer) {
  require(layer < now_.size(), "recurrent layer {} of {}", layer, now_.size());
  return now_[layer];
}

void RecurrentStates::advance(std::size_t layer, std::size_t tokens) {
  require(layer < now_.size(), "recurrent layer {} of {}", layer, now_.size());
  tokens_[layer] += tokens;
}

void RecurrentStates::keep() {
  kept_ = now_;
  kept_tokens_ = tokens_[0];
}

std::size_t RecurrentStates::reachable(std::size_t tokens) const {
  if (tokens >= tokens_[0]) return tokens_[0];
  return kept_tokens_ <= tokens ? kept_tokens_ : 0;
}

void RecurrentStates::truncate(std::size_t tokens) {
  if (std::ranges::all_of(tokens_, [&](std::size_t read) { return read == tokens; })) return;
  require(tokens == 0 || tokens == kept_tokens_,
          "recurrent layers have read {} tokens and cannot go back to {}, but to {}; clone() the "
          "cache before tokens that may be taken back",
          tokens_[0], tokens, kept_tokens_);
  std::ranges::fill(tokens_, tokens);
  if (tokens == 0) {
    for (std::vector<float>& state : now_) std::ranges::fill(state, 0.0f);
  } else {
    now_ = kept_;
  }
}

std::size_t RecurrentStates::bytes() const {
  std::size_t elements = 0;
  for (const States* all : {&now_, &kept_}) {
    for (const std::vector<float>& state : *all) elements += state.capacity();
  }
  return elements * sizeof(float);
}

void RecurrentStates::save(ByteWriter& out, std::size_t tokens) const {
  require(std::ranges::all_of(tokens_, [&](std::size_t read) { return read == tokens; }),
          "a cache is saved once each recurrent layer has read the same tokens");
  out.put<std::uint64_t>(kept_tokens_);
  for (const States* all : {&kept_, &now_}) {
    for (const std::vector<float>& state : *all) out.put_all<float>(state);
  }
}

void RecurrentStates::load(ByteReader& in) {
  kept_tokens_ = in.get_count(std::numeric_limits<std::int32_t>::max(), "the tokens kept");
  if (kept_tokens_ > 0) kept_ = now_;
  for (States* all : {&kept_, &now_}) {
    for (std::vector<float>& state : *all) {
      in.get_all<float>(state);
      require(first_not_finite(state) == state.size(), "{}: a recurrent state is not finite",
              in.what());
    }
  }
}

void RecurrentStates::set_tokens(std::size_t tokens, const std::string& what) {
  require(kept_tokens_ <= tokens, "{}: recurrent states are kept of token {} of {}", what,
          kept_tokens_, tokens);
  std::ranges::fill(tokens_, tokens);
}

}  // namespace ballast
