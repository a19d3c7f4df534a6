// Values of the chat templates' language, a small part of Jinja.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "formats/json_fwd.h"

namespace ballast::jinja {

class Value;
struct Arguments;

/// Python's integers have no limit. These hold every integer of JSON with room for arithmetic;
/// what exceeds them is an error.
__extension__ using Integer = __int128;

using List = std::vector<Value>;
using Function = std::function<Value(const Arguments&)>;

/// Keys in the order of their first setting, each a string, number, none or tuple of those. A
/// namespace is a dict whose entries templates may set.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  bool is_namespace = false;
  Function call = {};  ///< of the variable `loop`; empty: not callable

  const Value* find(std::string_view key) const;
  /// As Python: 1, 1.0 and true are one key. Throws Error if `key` cannot be one.
  const Value* find_key(const Value& key) const;
  /// Throws Error if `key` is no key. Costs the search for an entry of that key, and its place.
  void set(const Value& key, Value value);
};

struct Undefined {};
struct None {};

/// Cheap to copy; strings, lists and dicts are shared and, namespaces excepted, never change.
class Value {
 public:
  Value() = default;  // undefined
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(Integer{value}) {}
  Value(std::int64_t value) : data_(Integer{value}) {}
  Value(Integer value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(std::string value);
  /// Throws Error if the nesting becomes too deep, or if a namespace would be within a namespace.
  Value(List value);
  Value(Dict value);
  Value(Function value);
  /// A function that refers to `held`, which counts as nested in it.
  Value(Function value, const Value& held);
  static Value tuple(List value);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const Integer* integer() const { return std::get_if<Integer>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* string() const { return pointer<const std::string>(); }
  /// The items of a list or tuple.
  const List* list() const { return pointer<const List>(); }
  bool is_tuple() const { return is_tuple_; }
  const Dict* dict() const { return pointer<Dict>(); }
  Dict* name_space() const;
  /// Whether it is a namespace, or one is in it.
  bool has_namespace() const { return has_namespace_; }
  /// Null if the value cannot be called.
  const Function* function() const;
  bool is_number() const { return boolean() || integer() || real(); }
  /// The value of a bool or integer; none for other types.
  std::optional<Integer> whole() const;
  /// The value of a bool, integer or real; 0 for other types.
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
  std::variant<Undefined, None, bool, Integer, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<Dict>, std::shared_ptr<const Function>>
      data_;
  int depth_ = 0;
  bool is_tuple_ = false;
  bool has_namespace_ = false;
};

/// Whether a dict may have this key. Each item of a tuple costs its looking at.
bool is_key(const Value& value);

/// The nearest integer of 64 bits.
std::int64_t clamp_to_64(Integer value);

/// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at this place or of this name; `otherwise` if neither is given.
  Value get(std::size_t place, std::string_view name, Value otherwise = {}) const;
};

/// What a template may use.
struct Budget {
  std::uint64_t steps = 0;                         ///< among them the bytes that it makes
  std::uint64_t memory = std::uint64_t{16} << 20;  ///< bytes of the values that live at once
};

/// While it exists, this thread's steps and the bytes of the values that it makes are counted.
/// These values must end before it. Without a meter nothing is counted.
class Meter {
 public:
  explicit Meter(const Budget& budget);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

 private:
  friend class MemoryShare;
  friend void spend(std::uint64_t steps);
  friend void expect_room(std::uint64_t bytes);
  Budget left_;
  Meter* outer_;
};

/// Throws Error when the meter's steps are used up.
void spend(std::uint64_t steps);
/// The cost of looking through a value. Whatever reads a string in time linear in its size pays so
/// for each string that it reads.
void spend_on(const Value& value);
void spend_on(const Arguments& arguments);
/// Throws Error if `bytes` more are too many: for what grows before it becomes a value.
void expect_room(std::uint64_t bytes);

/// The arguments of Python's json.dumps().
struct JsonStyle {
  std::optional<std::string> indent = {};  ///< of each level; none: on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii = false;
  bool sorted = false;
};

bool equal(const Value& a, const Value& b);
/// Compares numbers, strings, or lists with their like; throws Error on other pairs.
bool less(const Value& a, const Value& b);
/// As Python's str().
std::string to_text(const Value& value);
/// As Python's repr().
std::string to_repr(const Value& value);
/// As Python's json.dumps().
std::string to_json(const Value& value, const JsonStyle& style);
Value from_json(const Json& json);

}  // namespace ballast::jinja
