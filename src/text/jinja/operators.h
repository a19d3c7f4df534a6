// Arithmetic, comparison and slicing of values, as in Python.
#pragma once

#include <string>

#include "text/jinja/value.h"

namespace ballast::jinja {

/// Every binary operator but `and` and `or`.
Value apply_operator(const std::string& op, const Value& left, const Value& right);

Value negate(const Value& value);

/// object[index], or an attribute of that name; undefined if there is neither. Throws Error if the
/// object itself is undefined.
Value item_at(const Value& object, const Value& index);

/// object[first:last:step]; what is not given is none.
Value slice(const Value& object, const Value& first, const Value& last, const Value& step);

}  // namespace ballast::jinja
