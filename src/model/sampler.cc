#include "ballast/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "ballast/random.h"
#include "base/fail.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// More likely first; ties by id, so that the order does not depend on the library's sort.
bool likelier(const TokenChance& a, const TokenChance& b) {
  return a.log_probability != b.log_probability ? a.log_probability > b.log_probability
                                                : a.token < b.token;
}

/// Index of the first logit equal to `top`, which is among them.
std::size_t first_of(std::span<const float> logits, float top) {
  return static_cast<std::size_t>(std::ranges::find(logits, top) - logits.begin());
}

double log_sum_exp(std::span<const float> logits, float top) {
  return top + std::log(kernels::sum_exp(logits, top));
}

/// The largest logit. Throws if a logit is NaN or the largest is not finite.
float checked_top(std::span<const float> logits) {
  const float top = kernels::largest(logits);
  for (std::size_t i = 0; std::isnan(top) && i < logits.size(); ++i) {
    require(!std::isnan(logits[i]), ErrorCode::not_finite, "the logit of token {} is not a number",
            i);
  }
  require(std::isfinite(top), ErrorCode::not_finite, "no logit is finite");
  return top;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  const auto& o = options;
  require(o.temperature >= 0.0f && std::isfinite(o.temperature),
          "temperature {}: expected 0 or more", o.temperature);
  require(o.top_p > 0.0f && o.top_p <= 1.0f, "top-p {}: expected more than 0, at most 1", o.top_p);
  require(o.min_p >= 0.0f && o.min_p < 1.0f, "min-p {}: expected 0 or more, below 1", o.min_p);
  require(o.repetition_penalty >= 1.0f && std::isfinite(o.repetition_penalty),
          "repetition penalty {}: expected 1 or more", o.repetition_penalty);
  require(std::isfinite(o.presence_penalty), "presence penalty {}: expected a finite number",
          o.presence_penalty);
  require(std::isfinite(o.frequency_penalty), "frequency penalty {}: expected a finite number",
          o.frequency_penalty);
  for (const auto& [token, bias] : o.logit_bias) {
    require(token >= 0 && std::isfinite(bias),
            "logit bias {} of token {}: expected a finite number", bias, token);
  }
}

bool Sampler::changes_logits() const {
  return options_.repetition_penalty != 1.0f || options_.presence_penalty != 0.0f ||
         options_.frequency_penalty != 0.0f || !options_.logit_bias.empty();
}

void Sampler::change_logits(std::span<const float> logits, std::span<const Token> history) {
  const auto place = [&](Token token) {
    const auto i = static_cast<std::size_t>(token);
    require(token >= 0 && i < logits.size(), "token id {} among {} logits", token, logits.size());
    return i;
  };
  // From the model's logit: a repeated token is penalized once.
  if (options_.repetition_penalty != 1.0f) {
    for (Token token : history.last(std::min(history.size(), options_.repetition_window))) {
      if (token < 0) continue;  // of a picture
      const std::size_t i = place(token);
      logits_[i] = logits[i] > 0.0f ? logits[i] / options_.repetition_penalty
                                    : logits[i] * options_.repetition_penalty;
    }
  }
  for (const auto& [token, bias] : options_.logit_bias) logits_[place(token)] += bias;
  if (options_.presence_penalty == 0.0f && options_.frequency_penalty == 0.0f) return;
  const auto chosen = static_cast<std::size_t>(std::min<std::uint64_t>(drawn_, history.size()));
  std::unordered_map<Token, std::size_t> counts;
  for (Token token : history.last(chosen)) ++counts[token];
  for (const auto& [token, count] : counts) {
    logits_[place(token)] -=
        options_.presence_penalty + options_.frequency_penalty * static_cast<float>(count);
  }
}

double log_sum_exp(std::span<const float> logits) {
  const float top = kernels::largest(logits);
  if (!std::isfinite(top)) return top;
  return log_sum_exp(logits, top);
}

double token_loss(std::span<const float> logits, Token token) {
  return log_sum_exp(logits) - logits[static_cast<std::size_t>(token)];
}

TokenChance Sampler::sample(std::span<const float> logits, std::span<const Token> history) {
  const float largest = checked_top(logits);
  const bool changed = changes_logits();
  if (changed || options_.temperature > 0.0f) logits_.assign(logits.begin(), logits.end());
  if (changed) change_logits(logits, history);
  const std::uint64_t draw = drawn_++;
  std::size_t chosen = 0;
  if (options_.temperature == 0.0f) {
    chosen = changed ? first_of(logits_, kernels::largest(logits_)) : first_of(logits, largest);
  } else {
    keep_likely();
    const float top = choices_[0].log_probability;
    double sum = 0.0;
    auto weight = [&](const TokenChance& c) {
      return std::exp((double{c.log_probability} - top) / options_.temperature);
    };
    for (const TokenChance& c : choices_) sum += weight(c);
    constexpr RandomKey kSampling{0, 0xffffffff, 0xffffffff};
    RandomKey key = kSampling;
    key.seed = options_.seed;
    double rest = random_unit(key, draw) * sum;
    chosen = static_cast<std::size_t>(choices_[0].token);
    for (const TokenChance& c : choices_) {
      const double w = weight(c);
      if (w > 0.0) chosen = static_cast<std::size_t>(c.token);
      if ((rest -= w) < 0.0) break;
    }
  }
  return {static_cast<Token>(chosen),
          static_cast<float>(double{logits[chosen]} - log_sum_exp(logits, largest))};
}

void Sampler::keep_likely() {
  choices_.resize(logits_.size());
  for (std::size_t i = 0; i < logits_.size(); ++i)
    choices_[i] = {static_cast<Token>(i), logits_[i]};
  if (options_.top_k > 0 && options_.top_k < choices_.size()) {
    const auto end = choices_.begin() + static_cast<std::ptrdiff_t>(options_.top_k);
    std::nth_element(choices_.begin(), end, choices_.end(), likelier);
    choices_.resize(options_.top_k);
  }
  std::iter_swap(choices_.begin(), std::min_element(choices_.begin(), choices_.end(), likelier));
  const float top = choices_[0].log_probability;
  if (options_.top_p < 1.0f) keep_top_p(top);
  if (options_.min_p > 0.0f) {
    const float least = top + std::log(options_.min_p);
    std::erase_if(choices_, [&](const TokenChance& c) { return c.log_probability < least; });
  }
}

void Sampler::keep_top_p(float top) {
  double sum = 0.0, kept_sum = 0.0;
  for (const TokenChance& c : choices_) sum += std::exp(double{c.log_probability} - top);
  // Tokens below an equal part of the probability left out cannot add up to it, so the others
  // reach top-p without them. Few tokens are left to sort.
  const double out = (1.0 - double{options_.top_p}) * sum;
  const double least = top + std::log(0.999 * out / static_cast<double>(choices_.size()));
  std::erase_if(choices_, [&](const TokenChance& c) { return c.log_probability < least; });
  std::sort(choices_.begin(), choices_.end(), likelier);
  std::size_t kept = 0;
  while (kept < choices_.size() && kept_sum < options_.top_p * sum) {
    kept_sum += std::exp(double{choices_[kept++].log_probability} - top);
  }
  choices_.resize(std::max<std::size_t>(1, kept));
}

std::vector<TokenChance> likeliest(std::span<const float> logits, std::size_t count) {
  const float largest = checked_top(logits);
  const auto total = static_cast<float>(log_sum_exp(logits, largest));
  std::vector<TokenChance> all(logits.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<Token>(i), logits[i] - total};
  count = std::min(count, all.size());
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(all.begin(), end, all.end(), likelier);
  all.resize(count);
  return all;
}

}  // namespace ballast
