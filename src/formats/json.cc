#include "formats/json.h"

#include <memory>
#include <utility>

namespace ballast {
namespace json_types {
namespace {

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

template <typename Value, typename Handler>
std::string to_text(const Value& value, int indent, char indent_char, bool ensure_ascii,
                    Handler handler) {
  std::string out;
  nlohmann::detail::serializer<Value> writer(
      nlohmann::detail::output_adapter<char, std::string>(out), indent_char, handler);
  writer.dump(value, indent >= 0, ensure_ascii, indent >= 0 ? static_cast<unsigned>(indent) : 0u);
  return out;
}

}  // namespace
}  // namespace json_types
}  // namespace ballast

template <>
void ballast::SortedJson::json_value::destroy(value_t type) {
  ballast::json_types::destroy<ballast::SortedJson>(*this, type);
}

template <>
std::string ballast::SortedJson::dump(int indent, char indent_char, bool ensure_ascii,
                                      error_handler_t error_handler) const {
  return ballast::json_types::to_text(*this, indent, indent_char, ensure_ascii, error_handler);
}

template <>
void ballast::Json::json_value::destroy(value_t type) {
  ballast::json_types::destroy<ballast::Json>(*this, type);
}

template <>
std::string ballast::Json::dump(int indent, char indent_char, bool ensure_ascii,
                                error_handler_t error_handler) const {
  return ballast::json_types::to_text(*this, indent, indent_char, ensure_ascii, error_handler);
}

template class nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t,
                                    std::uint64_t, double, std::allocator,
                                    ballast::json_types::Serializer>;
template class nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                    std::int64_t, std::uint64_t, double, std::allocator,
                                    ballast::json_types::Serializer>;
