// The terminal's width, and text broken to fit it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ballast {

/// Columns of standard output: COLUMNS if it is a number from 20, else what the terminal says,
/// else 80.
std::size_t terminal_width();

/// Breaks each line at blanks so that it takes at most `width` columns; 0: no limit. Longer words
/// stay whole. Lines after a break begin with `indent` blanks and `continued` ends those before.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent = 0,
                 std::string_view continued = "");

/// Breaks "term   explanation" so that later lines stand below the explanation.
std::string wrap_note(std::string_view note, std::size_t width);
/// wrap_note() of each line of a text.
std::string wrap_lines(std::string_view text, std::size_t width);

/// The text as a terminal can show it: bytes that are not UTF-8, control characters but line ends
/// and tabs, and marks that turn the direction of writing become \x1b or \u{202e}.
std::string terminal_text(std::string_view text);

}  // namespace ballast
