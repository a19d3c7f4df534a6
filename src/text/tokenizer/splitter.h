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
  /// What expressions may take for a text, all parts of it together: 1 s of this thread's processor
  /// and 1 us for each byte, from now on. Real expressions need a twentieth. `longest`: bytes of a
  /// word.
  class Deadline {
   public:
    explicit Deadline(std::size_t bytes, std::size_t longest = static_cast<std::size_t>(-1));
    /// Or nobody wants the words any more (Interruption).
    bool passed() const;
    /// Throws Error (over_limit) where a word has so many bytes or more.
    void check_word(std::size_t bytes) const;

   private:
    double end_;
    std::size_t longest_;
  };

  /// ICU's syntax, at most 16 KiB. Throws Error that names `source` and the expression.
  Splitter(const std::vector<std::string>& patterns, const std::string& source);

  /// Returns the words in order; their concatenation is `text`. Text that is not UTF-8 is matched
  /// as U+FFFD. Takes memory for `window` bytes of text and the longest word, not for the text; the
  /// words are the same with any window. Throws Error where the deadline has passed.
  void split(std::string_view text, const Deadline& deadline,
             const std::function<void(std::string_view)>& word, std::size_t window = kWindow) const;

 private:
  static constexpr std::size_t kWindow = std::size_t{1} << 16;

  /// Splits the first `taken` bytes of text and returns the length of the words that are certain,
  /// whatever follows.
  std::size_t split_part(std::string_view text, std::size_t taken, const Deadline& deadline,
                         const std::function<void(std::string_view)>& word) const;

  std::string source_;
  bool looks_back_ = false;  ///< where the first expression matches depends on what lies before
  std::vector<std::unique_ptr<icu::RegexPattern>> patterns_;
};

}  // namespace ballast
