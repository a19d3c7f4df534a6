// Which of several answers rests best on its text, and whether it rests on it at all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace ballast {

/// What is known of an answer that a model gave from one section. Chances are natural logarithms.
struct AnswerEvidence {
  double score = 0;     ///< of the section, by the question's words; see Found
  float certainty = 0;  ///< mean over the answer's tokens
  float least = 0;      ///< of its least likely token
  double missing = 0;   ///< share of the answer's words that the section lacks; see missing_words()
  double near = 0;  ///< share of the question's words that stand near the answer; see words_near()
  float looked_up = 0;     ///< attention of the heads that look things up to the section, 0 to 1
  std::size_t tokens = 0;  ///< of the answer

  /// Compares the answer's words with those of the section: `missing`, `near`.
  void compare(std::string_view section, std::string_view asked, std::string_view answer);
  /// The answer has another token, of this chance.
  void add(float chance) {
    const auto n = static_cast<float>(tokens++);
    certainty = (certainty * n + chance) / (n + 1);
    least = std::min(least, chance);
  }
};

/// The answer to take, of at least one: see docs/running-models.md for what was measured.
std::size_t best_answer(std::span<const AnswerEvidence> answers);

/// Whether a section of this score could still give a better answer, however sure.
bool may_be_beaten(std::span<const AnswerEvidence> answers, double score);

/// Whether the section supports the answer.
bool is_supported(const AnswerEvidence& answer);

}  // namespace ballast
