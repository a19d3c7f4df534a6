// Members and methods of values.
#include <algorithm>
#include <map>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Method = Value (*)(std::string_view, const Arguments&, Budget&);

std::string text_argument(const Arguments& arguments, std::size_t place, const char* name) {
  const Value value = arguments.get(place, name);
  require(value.string() != nullptr, "argument {} of a string's method is {}; expected a string",
          place + 1, value.type_name());
  return *value.string();
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t place, const char* name) {
  const Value value = arguments.get(place, name, -1);
  require(value.integer() != nullptr, "argument {} of a string's method is {}; expected an integer",
          place + 1, value.type_name());
  return *value.integer();
}

template <bool left, bool right>
Value strip_method(std::string_view text, const Arguments& arguments, Budget& budget) {
  const Value set = arguments.get(0, "chars", None{});
  budget.spend(text.size() + 1);
  if (set.is_none()) return std::string(strip(text, std::nullopt, left, right));
  const std::string characters = text_argument(arguments, 0, "chars");
  return std::string(strip(text, characters, left, right));
}

// startswith and endswith take one string or a list of them.
template <bool at_start>
Value affix_method(std::string_view text, const Arguments& arguments, Budget&) {
  const Value affix = arguments.get(0, "prefix");
  const auto matches = [&](const Value& value) {
    require(value.string() != nullptr, "startswith and endswith need a string, not {}",
            value.type_name());
    return at_start ? text.starts_with(*value.string()) : text.ends_with(*value.string());
  };
  if (!affix.list()) return matches(affix);
  return std::any_of(affix.list()->begin(), affix.list()->end(), matches);
}

Value split_method(std::string_view text, const Arguments& arguments, Budget& budget) {
  const std::int64_t limit = integer_argument(arguments, 1, "maxsplit");
  if (arguments.get(0, "sep", None{}).is_none()) return split(text, std::nullopt, limit, budget);
  return split(text, text_argument(arguments, 0, "sep"), limit, budget);
}

Value find_method(std::string_view text, const Arguments& arguments, Budget&) {
  const std::size_t at = text.find(text_argument(arguments, 0, "sub"));
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(characters(text.substr(0, at)).size());
}

const std::map<std::string, Method, std::less<>>& string_methods() {
  static const std::map<std::string, Method, std::less<>> table = {
      {"capitalize",
       [](std::string_view s, const Arguments&, Budget& b) -> Value {
         b.spend(s.size());
         return capitalize(s);
       }},
      {"count",
       [](std::string_view s, const Arguments& a, Budget& b) -> Value {
         return static_cast<std::int64_t>(split(s, text_argument(a, 0, "sub"), -1, b).size() - 1);
       }},
      {"endswith", affix_method<false>},
      {"find", find_method},
      {"join",
       [](std::string_view s, const Arguments& a, Budget& b) -> Value {
         return apply_filter("join", a.get(0, "iterable"), {{Value(std::string(s))}, {}}, b);
       }},
      {"lower",
       [](std::string_view s, const Arguments&, Budget& b) -> Value {
         b.spend(s.size());
         return to_lower(s);
       }},
      {"lstrip", strip_method<true, false>},
      {"replace",
       [](std::string_view s, const Arguments& a, Budget& b) -> Value {
         return replace(s, text_argument(a, 0, "old"), text_argument(a, 1, "new"),
                        integer_argument(a, 2, "count"), b);
       }},
      {"rstrip", strip_method<false, true>},
      {"split", split_method},
      {"splitlines",
       [](std::string_view s, const Arguments&, Budget& b) -> Value {
         if (s.ends_with('\n')) s.remove_suffix(1);
         return s.empty() ? List{} : split(s, "\n", -1, b);
       }},
      {"startswith", affix_method<true>},
      {"strip", strip_method<true, true>},
      {"upper",
       [](std::string_view s, const Arguments&, Budget& b) -> Value {
         b.spend(s.size());
         return to_upper(s);
       }},
  };
  return table;
}

Value call_dict_method(const Value& object, const std::string& name, const Arguments& arguments,
                       Budget& budget) {
  if (name == "items") return apply_filter("items", object, {}, budget);
  if (name == "keys") return items_of(object, budget);
  if (name == "get") {
    const Value key = arguments.get(0, "key");
    const Value* found = key.string() ? object.dict()->find(*key.string()) : nullptr;
    return found ? *found : arguments.get(1, "default", None{});
  }
  if (name == "values") {
    List out;
    for (const auto& [key, item] : object.dict()->items) out.push_back(item);
    budget.spend(out.size());
    return out;
  }
  fail(ErrorCode::unsupported, "the method '{}' of a dict is not supported", name.substr(0, 60));
}

}  // namespace

Value call_method(const Value& object, const std::string& name, const Arguments& arguments,
                  Budget& budget) {
  budget.spend_on(object);
  if (object.dict()) return call_dict_method(object, name, arguments, budget);
  require(object.string() != nullptr, ErrorCode::unsupported,
          "the method '{}' of {} is not supported", name.substr(0, 60), object.type_name());
  const auto found = string_methods().find(name);
  require(found != string_methods().end(), ErrorCode::unsupported,
          "the method '{}' of a string is not supported", name.substr(0, 60));
  return found->second(*object.string(), arguments, budget);
}

List items_of(const Value& value, Budget& budget) {
  if (value.list()) {
    budget.spend(value.list()->size());
    return *value.list();
  }
  List out;
  if (value.dict()) {
    for (const auto& [key, item] : value.dict()->items) {
      budget.spend(key.size() + 16);
      out.emplace_back(key);
    }
  } else if (value.string()) {
    budget.spend(16 * value.string()->size());
    for (std::string& c : characters(*value.string())) out.emplace_back(std::move(c));
  } else {
    require(value.is_undefined(), "{} has no items", value.type_name());
  }
  return out;
}

Value member(const Value& object, std::string_view name) {
  require(!object.is_undefined(), "'{}' of an undefined value", name.substr(0, 60));
  const Value* found = object.dict() ? object.dict()->find(name) : nullptr;
  return found ? *found : Value();
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.string()) {
    require(item.string() != nullptr, "'in' a string needs a string, not {}", item.type_name());
    budget.spend(container.string()->size() / 16 + 1);
    return container.string()->find(*item.string()) != std::string::npos;
  }
  if (container.dict()) return item.string() && container.dict()->find(*item.string());
  if (container.is_undefined()) return false;
  require(container.list() != nullptr, "'in' needs a string, list or dict, not {}",
          container.type_name());
  return std::any_of(container.list()->begin(), container.list()->end(),
                     [&](const Value& other) { return equal(other, item, budget); });
}

}  // namespace ballast::jinja
