#include "text/jinja/sequence_filters.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

std::string made(std::string text) {
  spend(text.size() + 1);
  return text;
}

// An attribute as filters name it: "a.0.b" reaches into items of items, an integer is an index.
Value attribute_path(Value value, const Value& attribute, const char* who) {
  if (attribute.integer()) return item_at(value, attribute);
  std::string_view path = expect_text(attribute, who);
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string part(path.substr(0, dot));
    spend(part.size() + 1);
    const bool is_index = is_kind(part, "isdigit").value_or(false);
    const auto index = is_index ? parse_integer(part, 10) : std::nullopt;
    value = item_at(value, index.value_or(Value(part)));
    if (dot == std::string_view::npos || value.is_undefined()) return value;
    path.remove_prefix(dot + 1);
  }
}

// What sort, min, max and unique compare: without case, unless it is asked for.
Value comparable(const Value& value, bool by_case) {
  return value.string() && !by_case ? Value(to_lower(made(*value.string()))) : value;
}

Arguments behind(const Arguments& arguments, std::size_t used) {
  Arguments rest;
  for (std::size_t i = used; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  rest.named = arguments.named;
  return rest;
}

// Items by their keys, in ascending order or in descending.
List sorted(std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  // Comparing may fail, so it must do so before the sort relies on an order.
  for (const auto& [key, item] : keyed) less(keyed[0].first, key);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  List items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

Value extreme(const Value& input, const Arguments& arguments, bool greatest) {
  const bool by_case = arguments.get(0, "case_sensitive", false).truth();
  const Value attribute = arguments.get(1, "attribute", None{});
  Value best, best_key;
  bool first = true;
  for (const Value& item : items_of(input)) {
    const Value subject =
        attribute.is_none() ? item : attribute_path(item, attribute, "min and max");
    const Value key = comparable(subject, by_case);
    if (!std::exchange(first, false) && !(greatest ? less(best_key, key) : less(key, best_key))) {
      continue;
    }
    best = item;
    best_key = key;
  }
  return best;
}

}  // namespace

List pairs_of(const Value& value) {
  List out;
  if (value.is_undefined()) return out;
  require(value.dict() != nullptr, "items needs a dict, not {}", value.type_name());
  for (const auto& [key, item] : value.dict()->items) {
    spend(32);
    out.push_back(Value::tuple({key, item}));
  }
  return out;
}

// select, reject, selectattr, rejectattr: (attribute,) test, arguments of the test.
Value choose(const Value& input, const Arguments& arguments, bool keep, bool by_attribute) {
  if (!input.truth()) return List{};
  const Value attribute = by_attribute ? arguments.get(0, "attribute") : Value();
  const Value test = arguments.get(by_attribute ? 1 : 0, "test");
  const Arguments rest = behind(arguments, by_attribute ? 2 : 1);
  List out;
  for (const Value& item : items_of(input)) {
    const Value subject = by_attribute ? attribute_path(item, attribute, "selectattr") : item;
    const bool holds = test.is_undefined()
                           ? subject.truth()
                           : apply_test(std::string(expect_text(test, "select")), subject, rest);
    if (holds == keep) out.push_back(item);
  }
  return out;
}

Value map_items(const Value& input, const Arguments& arguments) {
  if (!input.truth()) return List{};
  Value attribute, otherwise;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") attribute = value;
    if (name == "default") otherwise = value;
  }
  const Arguments rest = behind(arguments, 1);
  List out;
  for (const Value& item : items_of(input)) {
    if (arguments.positional.empty() && !attribute.is_undefined()) {
      const Value found = attribute_path(item, attribute, "map");
      out.push_back(found.is_undefined() ? otherwise : found);
    } else {
      const Value filter = arguments.get(0, "filter");
      out.push_back(apply_filter(std::string(expect_text(filter, "map")), item, rest));
    }
  }
  return out;
}

Value join(const Value& input, const Arguments& arguments) {
  const std::string between = to_text(arguments.get(0, "d", ""));
  const Value attribute = arguments.get(1, "attribute", None{});
  std::string out;
  bool first = true;
  for (const Value& item : items_of(input)) {
    if (!std::exchange(first, false)) out += made(between);
    out += to_text(attribute.is_none() ? item : attribute_path(item, attribute, "join"));
  }
  return out;
}

Value sort_items(const Value& input, const Arguments& arguments) {
  const bool by_case = arguments.get(1, "case_sensitive", false).truth();
  const Value attribute = arguments.get(2, "attribute", None{});
  List attributes;  // "a,b" sorts by a, then by b
  if (attribute.string()) attributes = split(*attribute.string(), ",", -1);
  if (attribute.integer()) attributes = {attribute};
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items_of(input)) {
    List key;
    for (const Value& each : attributes) {
      key.push_back(comparable(attribute_path(item, each, "sort"), by_case));
    }
    keyed.emplace_back(attribute.is_none() ? comparable(item, by_case) : Value(std::move(key)),
                       item);
  }
  return sorted(std::move(keyed), arguments.get(0, "reverse", false).truth());
}

Value sort_dict(const Value& input, const Arguments& arguments) {
  const bool by_case = arguments.get(0, "case_sensitive", false).truth();
  const Value by = arguments.get(1, "by", "key");
  require(by.string() && (*by.string() == "key" || *by.string() == "value"),
          "dictsort: 'by' is neither 'key' nor 'value'");
  require(!input.is_undefined(), "dictsort of an undefined value");
  const std::size_t place = *by.string() == "key" ? 0 : 1;
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& pair : pairs_of(input)) {
    keyed.emplace_back(comparable((*pair.list())[place], by_case), pair);
  }
  return sorted(std::move(keyed), arguments.get(2, "reverse", false).truth());
}

Value unique(const Value& input, const Arguments& arguments) {
  const bool by_case = arguments.get(0, "case_sensitive", false).truth();
  const Value attribute = arguments.get(1, "attribute", None{});
  List seen, out;
  for (const Value& item : items_of(input)) {
    const Value subject = attribute.is_none() ? item : attribute_path(item, attribute, "unique");
    const Value key = comparable(subject, by_case);
    require(is_key(key), "unique: {} cannot be told apart", key.type_name());
    if (std::ranges::any_of(seen, [&](const Value& old) { return equal(old, key); })) {
      continue;
    }
    seen.push_back(key);
    out.push_back(item);
  }
  return out;
}

Value greatest(const Value& input, const Arguments& arguments) {
  return extreme(input, arguments, true);
}

Value least(const Value& input, const Arguments& arguments) {
  return extreme(input, arguments, false);
}

}  // namespace ballast::jinja
