// Pre-tokenization: regular expressions split text into words before byte-pair encoding.
#pragma once

#include <unicode/regex.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// Applies each expression in turn. Within each word, every match and every gap between matches
/// becomes a word (Hugging Face's Split with behavior Isolated).
class Splitter {
 public:
  /// ICU's syntax. Throws Error that names `source` and the expression.
  Splitter(const std::vector<std::string>& patterns, const std::string& source);

  /// Returns the words in order; their concatenation is `text`. Text that is not UTF-8 is matched
  /// as U+FFFD.
  void split(std::string_view text, const std::function<void(std::string_view)>& word) const;

 private:
  std::string source_;
  std::vector<std::unique_ptr<icu::RegexPattern>> patterns_;
};

}  // namespace ballast
