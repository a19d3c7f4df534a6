// Bounds and steps of numbers in JSON Schema.
#pragma once

#include <optional>
#include <string>

#include "serve/grammar/json_rules.h"
#include "serve/http/fields.h"

namespace ballast::serve {

/// What minimum, maximum, exclusiveMinimum, exclusiveMaximum and multipleOf of a schema leave;
/// none: any number. Throws ApiError if no number is left, or if a keyword has a value of another
/// kind. `where`: the schema's place, for messages.
std::optional<JsonRules::Numbers> numbers_of(Fields& f, bool integer, const std::string& where);
/// Whether a constant lies between the bounds, and is a multiple.
bool is_within(Fields& f, const Json& value);

}  // namespace ballast::serve
