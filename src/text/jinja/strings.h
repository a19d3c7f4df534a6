// Python's string functions, as far as chat templates use them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace ballast::jinja {

/// Without whitespace, or the characters of `set`, at the left or right end.
std::string_view strip(std::string_view text, std::optional<std::string_view> set, bool left,
                       bool right);
/// At `separator` (not empty), or at whitespace, at most `limit` times (negative: always).
List split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit);
/// The same from the right end.
List split_right(std::string_view text, std::optional<std::string_view> separator,
                 std::int64_t limit);
/// At every line end that Unicode knows; `keep`: each line with its end.
List split_lines(std::string_view text, bool keep);
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t limit);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// The first letter upper, the others lower.
std::string capitalize(std::string_view text);
/// Capitalised words: Jinja's filter divides at spaces and brackets, Python's method at all that is
/// no letter.
std::string title_filter(std::string_view text);
std::string title_method(std::string_view text);
/// As Python's method of this name, such as "isdigit"; none if it has no such method.
std::optional<bool> is_kind(std::string_view text, std::string_view method);
/// As Python's int(text, base): none if that fails, undefined if Integer cannot hold it.
std::optional<Value> parse_integer(std::string_view text, int base);
/// As Python's float(text).
std::optional<double> parse_real(std::string_view text);
/// The number of characters; what is not UTF-8 counts in pieces.
std::size_t count_characters(std::string_view text);
/// The first `count` characters, or all if there are fewer.
std::string_view first_characters(std::string_view text, std::size_t count);
/// As the members of string_view, but in time linear in both sizes.
std::size_t find_text(std::string_view text, std::string_view wanted);
std::size_t find_last_text(std::string_view text, std::string_view wanted);
/// `spaces` in front of each line but the first (unless `first`) and, unless `blank`, empty ones.
std::string indent(std::string_view text, std::string_view spaces, bool first, bool blank);

}  // namespace ballast::jinja
