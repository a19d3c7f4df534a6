#include "library/evidence.h"

#include <cmath>

namespace ballast {
namespace {

/// An answer of a lower mean chance than e^-1.5 a token is a guess.
constexpr float kLeastCertain = -1.5f;

}  // namespace

std::size_t best_answer(std::span<const AnswerEvidence> answers) {
  double top = 0;
  for (const AnswerEvidence& one : answers) top = std::max(top, one.score);
  const auto weight = [&](const AnswerEvidence& one) {
    const double found = top > 0 ? std::log(std::max(one.score, 0.01 * top) / top) : 0;
    return double{one.certainty} + found;
  };
  return static_cast<std::size_t>(std::ranges::max_element(answers, {}, weight) - answers.begin());
}

bool is_supported(const AnswerEvidence& answer) {
  return answer.tokens > 0 && answer.certainty > kLeastCertain;
}

}  // namespace ballast
