// Parameters of calls that models write without quotes.
#pragma once

#include <string>
#include <string_view>

#include "formats/json.h"

namespace ballast {

/// The JSON of a parameter that a model wrote as bare text. `parameters`: the function's schema,
/// which says the parameter's type by type, const, enum, anyOf, oneOf, allOf, $ref or a keyword
/// that only one type has. A value of one of these types is taken as JSON or as Python writes it;
/// what fits none of them, or has no type, is a text.
std::string parameter_json(std::string_view text, const Json& parameters, const std::string& name);

}  // namespace ballast
