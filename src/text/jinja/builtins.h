// Filters, tests and methods of the chat templates' language.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/value.h"

namespace ballast::jinja {

/// `input | name(arguments)`. Throws Error that names an unknown filter.
Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments);

/// `input is name(arguments)`. Throws Error that names an unknown test.
bool apply_test(const std::string& name, const Value& input, const Arguments& arguments);

/// `object.name(arguments)` for strings, lists and dicts. Throws Error that names an unknown
/// method.
Value call_method(const Value& object, const std::string& name, const Arguments& arguments);

/// The items of a list, which is shared, not copied.
class Items {
 public:
  explicit Items(Value list) : list_(std::move(list)) {}
  List::const_iterator begin() const { return all().begin(); }
  List::const_iterator end() const { return all().end(); }
  const List& all() const { return *list_.list(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const Value& operator[](std::size_t i) const { return all()[i]; }
  /// A list, not a tuple.
  Value list() const { return list_.is_tuple() ? Value(all()) : list_; }

 private:
  Value list_;
};

/// The items that a loop over the value visits: items, keys or characters. Empty for undefined
/// values.
Items items_of(const Value& value);

/// `object.name`: a method or, if there is none, the member of a dict; undefined if there is
/// neither. Throws Error if the object itself is undefined.
Value attribute_of(const Value& object, const std::string& name);

/// Whether a dict has a method of this name, which then hides a key in `dict.name`.
bool is_dict_method(std::string_view name);

/// True if `item in container`.
bool contains(const Value& container, const Value& item);

std::string_view expect_text(const Value& value, const char* who);
/// Clamped to 64 bits.
std::int64_t expect_integer(const Value& value, const char* who);

}  // namespace ballast::jinja
