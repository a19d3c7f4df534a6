// Python's string functions, as far as chat templates use them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace ballast::jinja {

/// Without whitespace, or the characters of `set`, at the left or right end.
std::string_view strip(std::string_view text, std::optional<std::string_view> set, bool left,
                       bool right);
/// At `separator` (not empty), or at whitespace, at most `limit` times (negative: always).
List split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit,
           Budget& budget);
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t limit, Budget& budget);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// The first letter upper, the others lower.
std::string capitalize(std::string_view text);
/// Capitalised words, as Jinja's filter has it.
std::string title(std::string_view text);
/// Spaces in front of each line but the first (unless `first`) and, unless `blank`, empty ones.
std::string indent(std::string_view text, std::size_t width, bool first, bool blank,
                   Budget& budget);

}  // namespace ballast::jinja
