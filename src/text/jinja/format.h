// Python's two ways of putting values into a text.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace ballast::jinja {

/// `format % values`: values is a tuple, a dict for "%(name)s", or the only value. Throws Error on
/// a malformed format or values that do not fit it.
std::string percent_format(std::string_view format, const Value& values, Budget& budget);

/// `format.format(…)`. Nested fields such as "{:{width}}" are not supported (Error).
std::string brace_format(std::string_view format, const Arguments& arguments, Budget& budget);

}  // namespace ballast::jinja
