// The types of JSON values, declared.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace ballast {

namespace json_types {
template <typename T, typename = void>
struct Serializer;
}

/// nlohmann::json, but that its destructor needs no memory. Keys are sorted.
using SortedJson =
    nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                         double, std::allocator, json_types::Serializer>;

/// The same of nlohmann::ordered_json: keys keep insertion order.
using Json =
    nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t,
                         std::uint64_t, double, std::allocator, json_types::Serializer>;

}  // namespace ballast
