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

double top_score(std::span<const AnswerEvidence> answers) {
  double top = 0;
  for (const AnswerEvidence& one : answers) top = std::max(top, one.score);
  return top;
}

/// What a section's score adds to the support of its answer, 0 at most. `top`: the best score.
double of_score(double score, double top) {
  return top > 0 ? kOfScore * std::log(std::max(score, 0.01 * top) / top) : 0;
}

}  // namespace

void AnswerEvidence::compare(std::string_view section, std::string_view asked,
                             std::string_view answer) {
  missing = missing_words(section, asked, answer);
  near = words_near(section, asked, answer);
}

std::size_t best_answer(std::span<const AnswerEvidence> answers) {
  const double top = top_score(answers);
  const auto weight = [&](const AnswerEvidence& one) {
    return support(one) + of_score(one.score, top);
  };
  return static_cast<std::size_t>(std::ranges::max_element(answers, {}, weight) - answers.begin());
}

bool may_be_beaten(std::span<const AnswerEvidence> answers, double score) {
  const double top = top_score(answers);
  const AnswerEvidence& best = answers[best_answer(answers)];
  return !is_supported(best) || support(best) + of_score(best.score, top) < of_score(score, top);
}

bool is_supported(const AnswerEvidence& answer) {
  return answer.tokens > 0 && support(answer) > kLeast && answer.near >= kNear;
}

}  // namespace ballast
