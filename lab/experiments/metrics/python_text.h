// Text as Python's string functions see it: the benchmarks' official scores are defined by scripts
// in Python, down to what counts as whitespace, a digit or a word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// Code points; what is not UTF-8 becomes U+FFFD.
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view code_points);
/// len(text)
std::size_t count_code_points(std::string_view text);

/// text.lower(): full Unicode, independent of any locale.
std::string to_lower(std::string_view text);

/// c.isspace(), as split() and strip() use it.
bool is_space(char32_t c);
/// What \w matches.
bool is_word_character(char32_t c);

/// text.split()
std::vector<std::string> split_whitespace(std::string_view text);
/// text.split(separator), for one ASCII character: always at least one part.
std::vector<std::string> split_at(std::string_view text, char separator);
/// text.strip()
std::string strip(std::string_view text);
/// text.lstrip("\n").split("\n")[0]
std::string first_line(std::string_view text);
/// re.findall(r"\d+", text): digits of every script, as they stand.
std::vector<std::string> find_numbers(std::string_view text);
/// Such a number in ASCII digits, as int() reads it.
std::string ascii_digits(std::string_view number);
/// text.replace(from, to); `from` is not empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace ballast
