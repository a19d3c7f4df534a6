// JSON Schema as far as answers can be held to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "report/json.h"
#include "serve/grammar/grammar.h"

namespace ballast::serve {

/// Texts that are valid under a schema whose root is an object. Supported: type (one or several of
/// object, array, string, number, integer, boolean, null) and nullable, properties, required,
/// additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength, pattern (see
/// Expression), format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, enum,
/// const, anyOf, oneOf of schemas that a type or a constant tells apart, allOf of schemas that say
/// different things, $ref to a place of the schema ("#/$defs/NAME", "#"), with cycles too; and
/// annotations, which change nothing. A format that the standard does not define is one of these.
///
/// An object has the properties that the schema names, in their order, then further ones where
/// additionalProperties says so; without `properties` it has any. Numbers with bounds have no
/// exponent. Not all valid texts are made then, but all texts made are valid.
///
/// Throws ApiError that names the keyword by its place below `where` where anything else is used,
/// where a value is not what the keyword takes, or where all texts nest deeper than 64.
std::shared_ptr<const Grammar> compile_schema(const Json& schema, const std::string& where);

/// Any object.
std::shared_ptr<const Grammar> any_json_object();

/// A call of a function.
struct CallSchema {
  std::string name;
  Json parameters;    ///< a schema; null: any object
  std::string where;  ///< the schema's place, for messages
};

/// {"name": NAME, ARGUMENTS: PARAMETERS} of one of the calls. Throws as above.
std::shared_ptr<const Grammar> compile_calls(const std::vector<CallSchema>& calls,
                                             const std::string& arguments);

}  // namespace ballast::serve
