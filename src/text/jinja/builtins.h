// Filters, tests and methods of the chat templates' language.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace ballast::jinja {

/// `input | name(arguments)`. Throws Error that names an unknown filter.
Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments,
                   Budget& budget);

/// `input is name(arguments)`. Throws Error that names an unknown test.
bool apply_test(const std::string& name, const Value& input, const Arguments& arguments,
                Budget& budget);

/// `object.name(arguments)` for strings and dicts. Throws Error that names an unknown method.
Value call_method(const Value& object, const std::string& name, const Arguments& arguments,
                  Budget& budget);

/// What a loop over the value meets: items, keys, characters. Nothing for undefined values.
List items_of(const Value& value, Budget& budget);

/// `object.name` or `object[name]`: undefined if there is no such member. Throws Error if the
/// object itself is undefined.
Value member(const Value& object, std::string_view name);

/// True if `item in container`.
bool contains(const Value& container, const Value& item, Budget& budget);

/// The characters of a text; what is not UTF-8 stays in pieces.
std::vector<std::string> characters(std::string_view text);

}  // namespace ballast::jinja
