// Pre-tokenisation: text is cut into words by regular expressions before byte-pair encoding.
#pragma once

#include <unicode/regex.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// Cuts by each expression in turn: within each word so far, every match becomes a word, and so
/// does what lies between matches (Hugging Face's Split with behavior Isolated).
class Splitter {
 public:
  /// ICU's syntax. Throws Error that names `source` and the expression.
  Splitter(const std::vector<std::string>& patterns, const std::string& source);

  /// The words, in order, together make `text`. Text that is not UTF-8 is matched as U+FFFD.
  void split(std::string_view text, const std::function<void(std::string_view)>& word) const;

 private:
  std::string source_;
  std::vector<std::unique_ptr<icu::RegexPattern>> patterns_;
};

}  // namespace ballast
