// Members and methods of values.
#include <algorithm>
#include <map>
#include <optional>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Method = Value (*)(std::string_view, const Arguments&);

std::string_view text_argument(const Arguments& arguments, std::size_t place) {
  require(
      place < arguments.positional.size() && arguments.positional[place].string(),
      "argument {} of a string's method is {}; expected a string", place + 1,
      place < arguments.positional.size() ? arguments.positional[place].type_name() : "missing");
  return *arguments.positional[place].string();
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t place, const char* name) {
  const auto whole = arguments.get(place, name, -1).whole();
  require(whole.has_value(), "argument {} of a string's method is not an integer", place + 1);
  return clamp_to_64(*whole);
}

template <bool left, bool right>
Value strip_method(std::string_view text, const Arguments& arguments) {
  spend(text.size() + 1);
  if (arguments.get(0, "", None{}).is_none()) {
    return std::string(strip(text, std::nullopt, left, right));
  }
  const std::string_view set = text_argument(arguments, 0);
  spend(8 * set.size());  // it is sorted
  return std::string(strip(text, set, left, right));
}

// startswith and endswith take one string or a tuple of them.
template <bool at_start>
Value affix_method(std::string_view text, const Arguments& arguments) {
  const Value affix = arguments.get(0, "");
  const auto matches = [&](const Value& value) {
    spend_on(value);
    require(value.string() != nullptr, "startswith and endswith need a string, not {}",
            value.type_name());
    return at_start ? text.starts_with(*value.string()) : text.ends_with(*value.string());
  };
  if (!affix.is_tuple()) return matches(affix);
  return std::any_of(affix.list()->begin(), affix.list()->end(), matches);
}

template <bool from_right>
Value split_method(std::string_view text, const Arguments& arguments) {
  const std::int64_t limit = integer_argument(arguments, 1, "maxsplit");
  const Value separator = arguments.get(0, "sep", None{});
  std::optional<std::string_view> at;
  if (!separator.is_none()) at = expect_text(separator, "split");
  return from_right ? split_right(text, at, limit) : split(text, at, limit);
}

// The characters from the second argument to the third, as Python's slices count.
std::string_view within(std::string_view text, const Arguments& arguments, std::size_t& skipped) {
  if (arguments.positional.size() < 2) return text;
  const auto size = static_cast<std::int64_t>(count_characters(text));
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    const Value value = arguments.get(i, "", None{});
    if (value.is_none()) return otherwise;
    const std::int64_t given = expect_integer(value, "find");
    return std::clamp<std::int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const std::int64_t first = place(1, 0), last = std::max(first, place(2, size));
  skipped = static_cast<std::size_t>(first);
  text.remove_prefix(first_characters(text, skipped).size());
  return first_characters(text, static_cast<std::size_t>(last - first));
}

template <bool from_right>
Value find_method(std::string_view text, const Arguments& arguments) {
  const std::string_view wanted = text_argument(arguments, 0);
  spend((text.size() + wanted.size()) / 4);
  std::size_t skipped = 0;
  text = within(text, arguments, skipped);
  const std::size_t at = from_right ? find_last_text(text, wanted) : find_text(text, wanted);
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(skipped + count_characters(text.substr(0, at)));
}

Value count_method(std::string_view text, const Arguments& arguments) {
  const std::string_view wanted = text_argument(arguments, 0);
  spend((text.size() + wanted.size()) / 4);
  std::size_t skipped = 0;
  text = within(text, arguments, skipped);
  if (wanted.empty()) return static_cast<std::int64_t>(count_characters(text) + 1);
  std::int64_t count = 0;
  for (std::size_t at; (at = find_text(text, wanted)) != std::string_view::npos; ++count) {
    spend(1);
    text.remove_prefix(at + wanted.size());
  }
  return count;
}

// Python's str.format, with plain {} only: what templates of models write.
Value format_method(std::string_view text, const Arguments& arguments) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{' && text[i] != '}') {
      out += text[i];
      continue;
    }
    const std::string_view pair = text.substr(i++, 2);
    if (pair == "{{" || pair == "}}") {
      out += pair[0];
      continue;
    }
    require(pair == "{}", "format: only {{}} can be filled in, not {}", pair);
    require(next < arguments.positional.size(), "format: more {{}} than arguments");
    const std::string filled = to_text(arguments.positional[next++]);
    spend(filled.size());
    out += filled;
  }
  spend(text.size());
  return out;
}

template <std::string (*change)(std::string_view)>
Value change_method(std::string_view text, const Arguments&) {
  spend(4 * text.size() + 1);
  return change(text);
}

const std::map<std::string, Method, std::less<>>& string_methods() {
  static const std::map<std::string, Method, std::less<>> table = {
      {"capitalize", change_method<capitalize>},
      {"count", count_method},
      {"endswith", affix_method<false>},
      {"find", find_method<false>},
      {"format", format_method},
      {"join",
       [](std::string_view s, const Arguments& a) -> Value {
         const Items items = items_of(a.get(0, ""));
         for (const Value& item : items) expect_text(item, "join");
         return apply_filter("join", items.list(), {{Value(std::string(s))}, {}});
       }},
      {"lower", change_method<to_lower>},
      {"lstrip", strip_method<true, false>},
      {"removeprefix",
       [](std::string_view s, const Arguments& a) -> Value {
         const std::string_view prefix = text_argument(a, 0);
         spend(s.size() + 1);
         return std::string(s.starts_with(prefix) ? s.substr(prefix.size()) : s);
       }},
      {"removesuffix",
       [](std::string_view s, const Arguments& a) -> Value {
         const std::string_view suffix = text_argument(a, 0);
         spend(s.size() + 1);
         return std::string(s.ends_with(suffix) ? s.substr(0, s.size() - suffix.size()) : s);
       }},
      {"replace",
       [](std::string_view s, const Arguments& a) -> Value {
         return replace(s, text_argument(a, 0), text_argument(a, 1),
                        integer_argument(a, 2, "count"));
       }},
      {"rfind", find_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"splitlines",
       [](std::string_view s, const Arguments& a) -> Value {
         return split_lines(s, a.get(0, "keepends", false).truth());
       }},
      {"startswith", affix_method<true>},
      {"strip", strip_method<true, true>},
      {"title", change_method<title_method>},
      {"upper", change_method<to_upper>},
  };
  return table;
}

bool is_string_method(const std::string& name) {
  return string_methods().contains(name) || is_kind("", name).has_value();
}

constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
// They would change a dict, which templates may not do.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

Value call_dict_method(const Value& object, const std::string& name, const Arguments& arguments) {
  if (name == "items") return apply_filter("items", object, {});
  if (name == "keys") return items_of(object).list();
  if (name == "copy") return object;
  if (name == "get") {
    const Value* found = object.dict()->find_key(arguments.get(0, "key"));
    return found ? *found : arguments.get(1, "default", None{});
  }
  if (name == "values") {
    List out;
    for (const auto& [key, item] : object.dict()->items) out.push_back(item);
    spend(out.size());
    return out;
  }
  fail(ErrorCode::unsupported, "the method '{}' of a dict is not supported", name.substr(0, 60));
}

Value call_list_method(const Value& object, const std::string& name, const Arguments& arguments) {
  const List& items = *object.list();
  const Value wanted = arguments.get(0, "");
  const auto is_wanted = [&](const Value& item) { return equal(item, wanted); };
  if (name == "count") {
    return static_cast<std::int64_t>(std::count_if(items.begin(), items.end(), is_wanted));
  }
  if (name == "index") {
    const auto found = std::find_if(items.begin(), items.end(), is_wanted);
    require(found != items.end(), "index: the list has no such item");
    return static_cast<std::int64_t>(found - items.begin());
  }
  if (name == "copy" && !object.is_tuple()) return object;
  fail(ErrorCode::unsupported, "the method '{}' of {} is not supported", name.substr(0, 60),
       object.type_name());
}

}  // namespace

Value call_method(const Value& object, const std::string& name, const Arguments& arguments) {
  spend_on(object);
  spend_on(arguments);
  require(!object.is_undefined(), "'{}' of an undefined value", name.substr(0, 60));
  if (object.name_space()) fail("a namespace has no method '{}'", name.substr(0, 60));
  if (object.dict()) return call_dict_method(object, name, arguments);
  if (object.list()) return call_list_method(object, name, arguments);
  require(object.string() != nullptr, ErrorCode::unsupported,
          "the method '{}' of {} is not supported", name.substr(0, 60), object.type_name());
  if (is_kind("", name)) {
    spend(object.string()->size());
    return *is_kind(*object.string(), name);
  }
  const auto found = string_methods().find(name);
  require(found != string_methods().end(), ErrorCode::unsupported,
          "the method '{}' of a string is not supported", name.substr(0, 60));
  return found->second(*object.string(), arguments);
}

bool is_dict_method(std::string_view name) { return std::ranges::count(kDictMethods, name) > 0; }

Items items_of(const Value& value) {
  if (value.list()) {
    spend(value.list()->size());
    return Items(value);
  }
  List out;
  if (value.dict() && !value.name_space()) {
    for (const auto& [key, item] : value.dict()->items) {
      spend(16);
      out.push_back(key);
    }
  } else if (value.string()) {
    for (std::string_view rest = *value.string(); !rest.empty();) {
      spend(16);
      out.emplace_back(std::string(first_characters(rest, 1)));
      rest.remove_prefix(out.back().string()->size());
    }
  } else {
    require(value.is_undefined(), "{} has no items", value.type_name());
  }
  return Items(std::move(out));
}

Value attribute_of(const Value& object, const std::string& name) {
  spend_on(object);
  require(!object.is_undefined(), "'{}' of an undefined value", name.substr(0, 60));
  const bool is_plain_dict = object.dict() && !object.name_space();
  const bool is_list_method = name == "count" || name == "index";
  if ((is_plain_dict && is_dict_method(name)) || (object.list() && is_list_method) ||
      (object.string() && is_string_method(name))) {
    return {Function([object, name](const Arguments& arguments) {
              return call_method(object, name, arguments);
            }),
            object};
  }
  if (is_plain_dict && std::ranges::count(kDictChanges, std::string_view(name)) > 0) return {};
  const Value* found = object.dict() ? object.dict()->find(name) : nullptr;
  return found ? *found : Value();
}

bool contains(const Value& container, const Value& item) {
  if (container.string()) {
    require(item.string() != nullptr, "'in' a string needs a string, not {}", item.type_name());
    spend((container.string()->size() + item.string()->size()) / 4 + 1);
    return find_text(*container.string(), *item.string()) != std::string_view::npos;
  }
  if (container.dict()) return container.dict()->find_key(item) != nullptr;
  if (container.is_undefined()) return false;
  require(container.list() != nullptr, "'in' needs a string, list or dict, not {}",
          container.type_name());
  return std::any_of(container.list()->begin(), container.list()->end(),
                     [&](const Value& other) { return equal(other, item); });
}

}  // namespace ballast::jinja
