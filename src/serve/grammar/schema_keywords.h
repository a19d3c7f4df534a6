// The keywords of JSON Schema.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/json.h"
#include "serve/http/fields.h"

namespace ballast::serve {

/// Whether it says nothing about which texts are valid.
bool is_annotation(std::string_view keyword);
/// Whether a schema says nothing but this.
bool stands_alone(const Json& schema, std::string_view keyword);
/// Without a type, those of the values that its keywords hold: not all values that are valid.
/// `f`: of the schema. Throws ApiError for an unknown type.
std::vector<std::string> types_of(Fields& f, const Json& schema);
/// Refuses keywords that were not looked at, unless they say nothing about values of the types.
void end_keywords(Fields& f, const Json& schema, const std::vector<std::string>& types);
/// The expression of texts of a format, not all of them: days end with the 28th, which every month
/// has, times are in UTC, addresses are short. Nothing: the standard does not define it.
std::optional<std::string_view> format_expression(const Json& name);
/// Whether a value is of a type of JSON Schema.
bool is_of(const Json& value, std::string_view type);
/// The letter of its type: o a s n b 0.
char letter_of(const Json& value);
/// Where a part of a schema stands, for messages, in at most some 400 bytes.
std::string shortened(const std::string& where);

}  // namespace ballast::serve
