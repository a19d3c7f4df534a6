#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/fail.h"

namespace ballast::jinja {
namespace {

constexpr int kDeepest = 100;

int checked_depth(int deepest_item) {
  require(deepest_item < kDeepest, "values nested more than {} deep", kDeepest);
  return deepest_item + 1;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// A string as Python shows it within a list.
std::string quoted(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (char c : text) {
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out.push_back(c);
    }
  }
  out.push_back(quote);
  return out;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out.push_back(c);
        }
    }
  }
  return out + "\"";
}

// Lists and dicts, in either notation.
struct Printer {
  bool json;
  int indent;
  Budget& budget;
  std::string out;

  void print(const Value& value, int level) {
    const std::size_t before = out.size();
    if (const List* list = value.list()) {
      print_items('[', ']', list->size(), level,
                  [&](std::size_t i) { print((*list)[i], level + 1); });
    } else if (const Dict* dict = value.dict()) {
      print_items('{', '}', dict->items.size(), level, [&](std::size_t i) {
        const auto& [key, item] = dict->items[i];
        out += json ? json_string(key) : quoted(key);
        out += ": ";
        print(item, level + 1);
      });
    } else {
      out += scalar(value);
      budget.spend(out.size() - before + 1);
    }
  }

  template <typename Item>
  void print_items(char open, char close, std::size_t count, int level, const Item& item) {
    const auto new_line = [&](int depth) {
      if (indent < 0 || count == 0) return;
      out += '\n';
      out.append(static_cast<std::size_t>(indent) * depth, ' ');
      budget.spend(static_cast<std::uint64_t>(indent) * depth + 1);
    };
    out.push_back(open);
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out += indent < 0 ? ", " : ",";
      new_line(level + 1);
      item(i);
    }
    new_line(level);
    out.push_back(close);
    budget.spend(2 * count + 2);
  }

  std::string scalar(const Value& value) const {
    if (const std::string* text = value.string()) return json ? json_string(*text) : quoted(*text);
    if (const bool* b = value.boolean()) {
      return json ? (*b ? "true" : "false") : (*b ? "True" : "False");
    }
    if (const auto* i = value.integer()) return fmt::format("{}", *i);
    if (const auto* r = value.real()) return real_text(*r);
    if (value.is_none()) return json ? "null" : "None";
    require(!json, "tojson cannot write {}", value.type_name());
    return value.is_undefined() ? "Undefined" : "<function>";
  }
};

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Dict::set(const std::string& key, Value value) {
  for (auto& [name, old] : items) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  items.emplace_back(key, std::move(value));
}

Value::Value(List value) {
  int deepest = 0;
  for (const Value& item : value) deepest = std::max(deepest, item.depth());
  depth_ = checked_depth(deepest);
  data_ = std::make_shared<const List>(std::move(value));
}

Value::Value(Dict value) {
  int deepest = 0;
  for (const auto& [key, item] : value.items) deepest = std::max(deepest, item.depth());
  // What a namespace holds may change; this depth keeps it out of everything, so of itself too.
  depth_ = value.is_namespace ? kDeepest : checked_depth(deepest);
  data_ = std::make_shared<Dict>(std::move(value));
}

Dict* Value::name_space() const {
  Dict* dict = pointer<Dict>();
  return dict && dict->is_namespace ? dict : nullptr;
}

double Value::as_real() const {
  if (const auto* r = real()) return *r;
  if (const auto* i = integer()) return static_cast<double>(*i);
  return boolean() && *boolean() ? 1.0 : 0.0;
}

bool Value::truth() const {
  if (is_number()) return as_real() != 0.0;
  if (const auto* s = string()) return !s->empty();
  if (const auto* l = list()) return !l->empty();
  if (const auto* d = dict()) return d->is_namespace || !d->items.empty();
  return function() != nullptr;
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {
      "an undefined value", "none",   "a boolean", "an integer", "a number",
      "a string",           "a list", "a dict",    "a function"};
  return kNames[data_.index()];
}

Value Arguments::get(std::size_t place, std::string_view name, Value otherwise) const {
  if (place < positional.size()) return positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return otherwise;
}

void Budget::spend(std::uint64_t amount) {
  require(amount <= left_, ErrorCode::over_limit,
          "the template makes too much text or takes too many steps");
  left_ -= amount;
}

void Budget::spend_on(const Value& value) {
  const std::size_t size = value.string() ? value.string()->size()
                           : value.dict() ? 4 * value.dict()->items.size()
                                          : 0;
  spend(1 + size / 16);
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend_on(a);
  if (a.integer() && b.integer()) return *a.integer() == *b.integer();
  if (a.is_number() && b.is_number()) return a.as_real() == b.as_real();
  if (a.string() && b.string()) {
    return *a.string() == *b.string();
  }
  if (a.list() && b.list()) {
    return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(),
                      [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  if (a.dict() && b.dict()) {
    const auto& items = a.dict()->items;
    if (a.dict() == b.dict()) return true;
    return items.size() == b.dict()->items.size() &&
           std::all_of(items.begin(), items.end(), [&](const auto& item) {
             const Value* other = b.dict()->find(item.first);
             return other && equal(item.second, *other, budget);
           });
  }
  if (a.function() || b.function()) return a.function() == b.function();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.spend_on(a);
  if (a.integer() && b.integer()) return *a.integer() < *b.integer();
  if (a.is_number() && b.is_number()) return a.as_real() < b.as_real();
  require(a.string() && b.string(), "{} cannot be compared with {}", a.type_name(), b.type_name());
  return *a.string() < *b.string();
}

std::string to_text(const Value& value, Budget& budget) {
  if (const std::string* text = value.string()) {
    budget.spend(text->size());
    return *text;
  }
  if (value.is_undefined()) return "";
  Printer printer{false, -1, budget, ""};
  printer.print(value, 0);
  return std::move(printer.out);
}

std::string to_json(const Value& value, int indent, Budget& budget) {
  Printer printer{true, indent, budget, ""};
  printer.print(value, 0);
  return std::move(printer.out);
}

Value from_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
    case nlohmann::ordered_json::value_t::number_unsigned:
      return json.get<std::int64_t>();
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return json.get<std::string>();
    case nlohmann::ordered_json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(from_json(item));
      return list;
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.set(key, from_json(item));
      return dict;
    }
    default:
      return None{};
  }
}

}  // namespace ballast::jinja
