// Answers that end where they begin to repeat themselves.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/session.h"

namespace ballast::cli {

/// Sees an answer grow, and when its end says the same again and again.
class Repetition {
 public:
  /// Whether the last tokens are at least four times the same up to 128 tokens, over 60 of them.
  bool add(Token token);
  /// Whether the last six lines are one or two, of more than a few words, whatever their numbers:
  /// lists that count on without an end.
  bool add(std::string_view text);

 private:
  static constexpr std::size_t kLines = 6;
  static constexpr std::size_t kLongLine = 30;  ///< bytes without digits, marks and blanks

  static constexpr std::size_t kLongest = 128;  ///< tokens that are repeated
  static constexpr std::size_t kLeast = 60;     ///< tokens that repeat others

  std::vector<Token> tokens_;
  /// At p: how many of the last tokens are those p before them.
  std::array<std::size_t, kLongest + 1> same_{};
  std::string line_;               ///< the last one, not ended
  std::deque<std::string> lines_;  ///< the last ones, without digits, marks and blanks
};

/// Breaks lines between words, text by text.
class WordWrap {
 public:
  /// 0: lines stay as they are.
  explicit WordWrap(std::size_t width) : width_(width) {}

  /// The text so far but for the word that may go on.
  std::string push(std::string_view text);
  /// The rest.
  std::string finish();

 private:
  void flush(std::string& out);

  std::size_t width_, column_ = 0;
  std::string blanks_, word_;
  bool may_break_ = false;  ///< before the word
};

/// An answer on standard output as it is made; words stay whole on a terminal.
class AnswerOutput {
 public:
  AnswerOutput();

  void add(std::string_view text);
  /// The rest, and the end of the line if it has none.
  void finish();

 private:
  WordWrap words_;
  bool open_ = true;
};

struct Answered {
  Generated made;
  bool repeats = false;  ///< and was ended for it; made.finish is `cancelled`
};

/// An answer that the session then goes on from. `cut`: ends one that repeats itself. `on_text`:
/// see Generation::run.
Answered generate_answer(Session& session, const GenerateOptions& options, bool cut,
                         const std::function<bool(std::string_view)>& on_text);

/// Says so on standard error.
void tell_if_repeats(const Answered& answer);

}  // namespace ballast::cli
