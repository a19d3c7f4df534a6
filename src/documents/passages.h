// The sentences of a text, where they stand, and those that an answer rests on.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace ballast {

/// A part of a text, in bytes.
struct Passage {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Passage&) const = default;
};

/// The sentences of a text without the blanks around them, in order. An empty line ends one; so
/// does a line end, unless a line of prose goes on in the next. "Mr." ends none. What would
/// be longer than 1,000 bytes is its lines.
std::vector<Passage> sentences(std::string_view text);

/// Where a part of a text stands. What joined_text() writes between parts says it.
struct Place {
  std::string document;  ///< empty: the text is of one document, which the reader knows
  std::size_t page = 0;  ///< from 1; 0: the document has none
  std::size_t line = 0;  ///< from 1, of the document's text or that of its page
  /// Whether `line` is a line of the document, too: see keeps_lines().
  bool has_line() const;
  bool operator==(const Place&) const = default;
};
/// Of the byte `at` of a text.
Place place_of(std::string_view text, std::size_t at);
/// "a.pdf, page 3, line 12", "line 12", "a.html".
std::string to_string(const Place& place);

/// A sentence that an answer rests on.
struct Citation {
  std::string text;  ///< the sentence, blanks and line ends as one space
  Passage part;      ///< the sentence, in bytes of the context
  Place place;
  float share = 0;  ///< of what the answer looked up in the text
  /// Of the text that was read: those that begin in the sentence.
  std::size_t first_token = 0;
  std::size_t end_token = 0;
};

/// The sentences of a context that an answer rests on, the one looked at most first; at most three,
/// none that has less than a fifth of the first; nothing where the answer looked up hardly
/// anything. `tokens`: of the text that was read, of which the first `before` bytes are no part of
/// the context. `attention`: an element a token: see Lookup.
std::vector<Citation> cite(const Tokenizer& tokenizer, std::span<const Token> tokens,
                           std::size_t before, std::span<const float> attention);

}  // namespace ballast
