// JSON values whose destructor needs no memory. That of nlohmann::json allocates, and a destructor
// that cannot throw ends the program. All of src/ uses the types of this header instead: their own
// Serializer makes them types of their own, so that a member can be specialised before any use.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "formats/json_fwd.h"

namespace ballast {
namespace json_types {

template <typename T, typename>
struct Serializer : nlohmann::adl_serializer<T> {};

}  // namespace json_types
}  // namespace ballast

// Defined in json.cc, as are all members that are no templates: building them in every source took
// a quarter of the time.
template <>
void ballast::SortedJson::json_value::destroy(value_t type);
template <>
void ballast::Json::json_value::destroy(value_t type);
template <>
std::string ballast::SortedJson::dump(int indent, char indent_char, bool ensure_ascii,
                                      error_handler_t error_handler) const;
template <>
std::string ballast::Json::dump(int indent, char indent_char, bool ensure_ascii,
                                error_handler_t error_handler) const;
extern template class nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t,
                                           std::uint64_t, double, std::allocator,
                                           ballast::json_types::Serializer>;
extern template class nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                           std::int64_t, std::uint64_t, double, std::allocator,
                                           ballast::json_types::Serializer>;
