// JSON Schema as far as answers can be held to it.
#pragma once

#include <memory>
#include <string>

#include "report/json.h"
#include "serve/json_grammar.h"

namespace ballast::serve {

/// Texts that are valid under a schema whose root is an object. Supported: type (one or several of
/// object, array, string, number, integer, boolean, null), properties, required,
/// additionalProperties: false, items, minItems, maxItems, enum, const, anyOf, $ref to
/// "#/$defs/NAME" or "#/definitions/NAME" without cycles; and annotations, which change nothing.
///
/// An object has the properties that the schema names, in their order, and no others; without
/// `properties` it has any. Not all valid texts are made then, but all texts made are valid.
///
/// Throws ApiError that names the keyword by its place below `where` where anything else is used,
/// where a value is not what the keyword takes, or where texts nest deeper than 64.
std::shared_ptr<const JsonGrammar> compile_schema(const Json& schema, const std::string& where);

}  // namespace ballast::serve
