#include "library/evidence.h"

#include <cmath>

#include "documents/search.h"

namespace ballast {
namespace {

// Chosen on questions of lab/bench/library.py: see docs/running-models.md.
constexpr double kOfScore = 0.5, kOfMissing = 0.5;
/// From here on an answer is one of the section's.
constexpr double kLeast = -0.5;
/// An answer that stands nowhere near the question's words is another's.
constexpr double kNear = 0.25;

/// A likely answer in the section's own words.
double support(const AnswerEvidence& answer) {
  return double{answer.certainty} - kOfMissing * answer.missing;
}

}  // namespace

void AnswerEvidence::compare(std::string_view section, std::string_view asked,
                             std::string_view answer) {
  missing = missing_words(section, asked, answer);
  near = words_near(section, asked, answer);
}

std::size_t best_answer(std::span<const AnswerEvidence> answers) {
  double top = 0;
  for (const AnswerEvidence& one : answers) top = std::max(top, one.score);
  const auto weight = [&](const AnswerEvidence& one) {
    const double found = top > 0 ? std::log(std::max(one.score, 0.01 * top) / top) : 0;
    return support(one) + kOfScore * found;
  };
  return static_cast<std::size_t>(std::ranges::max_element(answers, {}, weight) - answers.begin());
}

bool is_supported(const AnswerEvidence& answer) {
  return answer.tokens > 0 && support(answer) > kLeast && answer.near >= kNear;
}

}  // namespace ballast
