// Values of the chat templates' language, a small part of Jinja.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ballast::jinja {

class Value;
struct Arguments;

using List = std::vector<Value>;
using Function = std::function<Value(const Arguments&)>;

/// Keys in the order of their first setting. A namespace is one whose entries templates may set.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  bool is_namespace = false;

  const Value* find(std::string_view key) const;
  void set(const std::string& key, Value value);
};

struct Undefined {};
struct None {};

/// Cheap to copy; strings, lists and dicts are shared and, namespaces excepted, never change.
class Value {
 public:
  Value() = default;  // undefined
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  /// Throws Error if the nesting becomes too deep; a namespace cannot be within another value.
  Value(List value);
  Value(Dict value);
  Value(Function value) : data_(std::make_shared<const Function>(std::move(value))) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* string() const { return pointer<const std::string>(); }
  const List* list() const { return pointer<const List>(); }
  const Dict* dict() const { return pointer<Dict>(); }
  Dict* name_space() const;
  const Function* function() const { return pointer<const Function>(); }
  bool is_number() const { return boolean() || integer() || real(); }
  /// Of a bool, integer or real; 0 otherwise.
  double as_real() const;

  bool truth() const;
  /// "a string", "a list", for messages.
  const char* type_name() const;
  int depth() const { return depth_; }

 private:
  template <typename T>
  T* pointer() const {
    const auto* shared = std::get_if<std::shared_ptr<T>>(&data_);
    return shared ? shared->get() : nullptr;
  }
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<Dict>, std::shared_ptr<const Function>>
      data_;
  int depth_ = 0;
};

/// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at this place or of this name; `otherwise` if neither is given.
  Value get(std::size_t place, std::string_view name, Value otherwise = {}) const;
};

/// What templates may still spend, in bytes made and steps taken: it ends any that would not end
/// in reasonable time and memory.
class Budget {
 public:
  explicit Budget(std::uint64_t amount) : left_(amount) {}
  /// Throws Error when it is used up.
  void spend(std::uint64_t amount);
  /// The cost of looking through a value.
  void spend_on(const Value& value);

 private:
  std::uint64_t left_;
};

bool equal(const Value& a, const Value& b, Budget& budget);
/// Numbers with numbers, strings with strings; throws Error otherwise.
bool less(const Value& a, const Value& b, Budget& budget);
/// As Python's str().
std::string to_text(const Value& value, Budget& budget);
/// As Python's json.dumps(value, ensure_ascii=False, indent=indent); indent < 0: on one line.
std::string to_json(const Value& value, int indent, Budget& budget);
Value from_json(const nlohmann::ordered_json& json);

}  // namespace ballast::jinja
