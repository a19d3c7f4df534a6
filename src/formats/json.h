// JSON values whose destructor needs no memory. That of nlohmann::json allocates, and a destructor
// that cannot throw ends the program. All of src/ uses the types of this header instead: their own
// Serializer makes them types of their own, so that a member can be specialised before any use.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/json_fwd.h"

namespace ballast {
namespace json_types {

template <typename T, typename>
struct Serializer : nlohmann::adl_serializer<T> {};

/// Arrays and objects that are to be destroyed, of any depth: without recursion, and without memory
/// but their own. Each holds the next as its first element.
template <typename Value>
class Remains {
 public:
  /// Destroys `value`, or what it holds first, and so on; the others are taken in.
  void add(Value&& given) noexcept {
    Value value = std::move(given);
    while (value.is_structured() && !value.empty()) {
      value.front().swap(next_);
      value.swap(next_);
    }
  }

  ~Remains() {
    while (!next_.is_null()) {
      Value value;
      value.swap(next_);
      value.front().swap(next_);
      for (Value& element : value) add(std::move(element));
    }
  }

 private:
  Value next_;
};

template <typename T>
void free_value(T* value) noexcept {
  std::destroy_at(value);
  std::allocator<T>().deallocate(value, 1);
}

template <typename Value, typename Container, typename Element>
void free_container(Container* container, Element element) noexcept {
  Remains<Value> remains;
  for (auto& item : *container) remains.add(std::move(element(item)));
  free_value(container);
}

/// json_value::destroy(), for which `storage` is the union. A pointer is null where memory ended
/// before the value was made.
template <typename Value, typename Storage>
void destroy(Storage& storage, typename Value::value_t type) noexcept {
  using Type = typename Value::value_t;
  if (type == Type::array && storage.array != nullptr) {
    free_container<Value>(storage.array, [](auto& item) -> Value& { return item; });
  } else if (type == Type::object && storage.object != nullptr) {
    free_container<Value>(storage.object, [](auto& item) -> Value& { return item.second; });
  } else if (type == Type::string && storage.string != nullptr) {
    free_value(storage.string);
  } else if (type == Type::binary && storage.binary != nullptr) {
    free_value(storage.binary);
  }
}

}  // namespace json_types
}  // namespace ballast

template <>
inline void ballast::SortedJson::json_value::destroy(value_t type) {
  ballast::json_types::destroy<ballast::SortedJson>(*this, type);
}

template <>
inline void ballast::Json::json_value::destroy(value_t type) {
  ballast::json_types::destroy<ballast::Json>(*this, type);
}
