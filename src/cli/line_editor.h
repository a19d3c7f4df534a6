// Lines that a person types: editing, history, pasted texts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace ballast::cli {

/// Reads lines from standard input. On a terminal they are edited with libedit and kept as a
/// history of this session; a bracketed paste of several lines or over 200 characters stands in
/// the line as "[paste 1: 12 lines, 1,234 characters]" and comes back whole. Ctrl-C throws a typed
/// line away; on an empty one it is a signal.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// Whether a person types.
  bool interactive() const { return state_ != nullptr; }
  /// The next line without its end, after `prompt` on a terminal; none at the end of the input.
  /// Throws Error if standard input cannot be read or is no UTF-8 text; a byte order mark is
  /// dropped.
  std::optional<std::string> read(const char* prompt);

 private:
  struct State;
  std::unique_ptr<State> state_;  ///< null without a terminal
  std::size_t lines_ = 0;         ///< read without one
};

}  // namespace ballast::cli
