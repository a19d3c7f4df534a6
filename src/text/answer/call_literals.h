// Calls that models write like code.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ballast {

/// Reads values as Python, JSON and Gemma write them, and makes JSON of them.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : rest_(text) {}

  /// What has not been read.
  std::string_view rest() const { return rest_; }
  /// Skips blanks, then the mark if it comes next.
  bool take(std::string_view mark);
  /// A name of letters, digits, '_', '.' and '-'; empty: none.
  std::string_view name();
  /// The arguments of a call as a JSON object: NAME = VALUE or NAME: VALUE, up to `close`.
  std::optional<std::string> arguments(char close);
  /// A value as JSON; a word without quotes is a text.
  std::optional<std::string> value();

 private:
  std::optional<std::string> list(char close);
  std::optional<std::string> text(char quote);

  std::string_view rest_;
  int depth_ = 0;
};

}  // namespace ballast
