#include "text/jinja/value.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "formats/json.h"
#include "text/tokenizer/utf8.h"

namespace ballast::jinja {
namespace {

constexpr int kDeepest = 100;

int checked_depth(int deepest_item) {
  require(deepest_item < kDeepest, "values nested more than {} deep", kDeepest);
  return deepest_item + 1;
}

// Of a value's place in a list, and of what a string takes besides its bytes.
constexpr std::uint64_t kPlaceBytes = sizeof(Value), kStringBytes = 128, kFunctionBytes = 192;

thread_local Meter* meter = nullptr;

bool same_text(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  spend(a.size() / 16);
  return a == b;
}

bool same_key(const Value& a, const Value& b) {
  if (a.string() && b.string()) return same_text(*a.string(), *b.string());
  if (a.is_number() && b.is_number()) {
    return a.real() || b.real() ? a.as_real() == b.as_real() : *a.whole() == *b.whole();
  }
  if (a.is_tuple() && b.is_tuple()) {
    if (a.list()->size() != b.list()->size()) return false;
    spend(a.list()->size() / 4 + 1);
    return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(),
                      [&](const Value& x, const Value& y) { return same_key(x, y); });
  }
  return a.is_none() && b.is_none();
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// As Python's str.isprintable().
bool is_printable(char32_t c) {
  constexpr std::uint32_t kHidden = U_GC_C_MASK | U_GC_Z_MASK;
  return c == ' ' || (U_GET_GC_MASK(static_cast<UChar32>(c)) & kHidden) == 0;
}

/// A text that grows, and is paid for while it does.
struct PaidText {
  std::string& out;
  std::size_t paid = out.size();

  void pay(std::size_t from = 0) {
    if (out.size() < paid + from) return;
    spend(out.size() - paid);
    paid = out.size();
  }
};

// Appends a string as Python's repr() shows it.
void append_quoted(std::string& out, const std::string& text) {
  constexpr std::string_view kEscaped = "\n\r\t", kLetters = "nrt";
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  PaidText paid{out};
  out.push_back(quote);
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = next_utf8(text, i);
    const std::string_view bytes = std::string_view(text).substr(i, character.length);
    const auto code = static_cast<unsigned>(character.code);
    i += character.length;
    paid.pay(4096);
    if (bytes[0] == quote || bytes[0] == '\\') {
      out += {'\\', bytes[0]};
    } else if (const auto at = kEscaped.find(bytes[0]); at != std::string_view::npos) {
      out += {'\\', kLetters[at]};
    } else if (is_printable(character.code)) {
      out += bytes;
    } else {
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  out.push_back(quote);
  paid.pay();
}

// Appends a string as Python's json.dumps() writes it.
void append_json(std::string& out, const std::string& text, bool ascii) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  PaidText paid{out};
  out.push_back('"');
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = next_utf8(text, i);
    const std::string_view bytes = std::string_view(text).substr(i, character.length);
    const auto escaped = kEscaped.find(bytes[0]);
    i += character.length;
    paid.pay(4096);
    if (bytes.size() == 1 && escaped != std::string_view::npos) {
      out += {'\\', kLetters[escaped]};
    } else if (character.code < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(character.code));
    } else if (ascii && character.code >= 0x10000) {
      const auto code = static_cast<unsigned>(character.code) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
    } else if (ascii && character.code > 0x7e) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(character.code));
    } else {
      out += bytes;
    }
  }
  out.push_back('"');
  paid.pay();
}

// Python's repr() or, given a style, json.dumps().
struct Printer {
  const JsonStyle* json;
  std::string out;

  void print(const Value& value, int level) {
    if (const List* list = value.list()) {
      const bool is_tuple = value.is_tuple() && json == nullptr;
      print_items(is_tuple ? '(' : '[', is_tuple ? ')' : ']', list->size(), level,
                  [&](std::size_t i) {
                    print((*list)[i], level + 1);
                    if (is_tuple && list->size() == 1) out += ',';
                  });
    } else if (const Dict* dict = value.dict()) {
      const auto items = in_order(*dict);
      print_items('{', '}', items.size(), level, [&](std::size_t i) {
        if (json) {
          append_json(out, json_key(items[i]->first), json->ascii);
        } else {
          print(items[i]->first, level + 1);
        }
        separate(json ? json->key_separator : ": ");
        print(items[i]->second, level + 1);
      });
    } else if (const std::string* text = value.string()) {
      spend(1);
      json ? append_json(out, *text, json->ascii) : append_quoted(out, *text);
    } else {
      const std::size_t before = out.size();
      out += scalar(value);
      spend(out.size() - before + 1);
    }
  }

  std::vector<const std::pair<Value, Value>*> in_order(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (json == nullptr || !json->sorted) return items;
    for (const auto* item : items) less(items[0]->first, item->first);
    std::stable_sort(items.begin(), items.end(),
                     [&](const auto* a, const auto* b) { return less(a->first, b->first); });
    return items;
  }

  void separate(std::string_view separator) {
    spend(separator.size());
    out += separator;
  }

  template <typename Item>
  void print_items(char open, char close, std::size_t count, int level, const Item& item) {
    const auto new_line = [&](int depth) {
      if (json == nullptr || !json->indent || count == 0) return;
      spend(json->indent->size() * static_cast<std::uint64_t>(depth) + 1);
      out += '\n';
      for (int i = 0; i < depth; ++i) out += *json->indent;
    };
    out.push_back(open);
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) separate(json ? json->item_separator : ", ");
      new_line(level + 1);
      item(i);
    }
    new_line(level);
    out.push_back(close);
    spend(2 * count + 2);
  }

  std::string json_key(const Value& key) const {
    require(!key.list(), "tojson cannot write a key that is a tuple");
    return key.string() ? *key.string() : scalar(key);
  }

  std::string scalar(const Value& value) const {
    if (const bool* b = value.boolean()) {
      return json ? (*b ? "true" : "false") : (*b ? "True" : "False");
    }
    if (const auto* i = value.integer()) return fmt::format("{}", *i);
    if (const auto* r = value.real()) {
      if (json == nullptr || std::isfinite(*r)) return real_text(*r);
      return std::isnan(*r) ? "NaN" : *r > 0 ? "Infinity" : "-Infinity";
    }
    if (value.is_none()) return json ? "null" : "None";
    require(!json, "tojson cannot write {}", value.type_name());
    return value.is_undefined() ? "Undefined" : "<function>";
  }
};

}  // namespace

const Value* Dict::find(std::string_view key) const {
  spend(items.size() / 8);
  for (const auto& [name, value] : items) {
    if (name.string() && same_text(*name.string(), key)) return &value;
  }
  return nullptr;
}

const Value* Dict::find_key(const Value& key) const {
  require(is_key(key), "{} cannot be a key of a dict", key.type_name());
  if (key.string()) return find(*key.string());
  spend(items.size() / 8);
  for (const auto& [name, value] : items) {
    if (same_key(name, key)) return &value;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  require(is_key(key), "{} cannot be a key of a dict", key.type_name());
  spend(32 + items.size() / 8);
  for (auto& [name, old] : items) {
    if (same_key(name, key)) {
      old = std::move(value);
      return;
    }
  }
  items.emplace_back(key, std::move(value));
}

bool is_key(const Value& value) {
  if (value.is_tuple()) {
    spend(value.list()->size() / 4 + 1);
    return std::ranges::all_of(*value.list(), [&](const Value& item) { return is_key(item); });
  }
  return value.string() || value.is_number() || value.is_none();
}

/// What one value takes of the memory that is counted, if it is.
class MemoryShare {
 public:
  explicit MemoryShare(std::uint64_t bytes) : meter_(meter), bytes_(bytes) {
    expect_room(bytes);
    if (meter_ != nullptr) meter_->left_.memory -= bytes;
  }
  ~MemoryShare() {
    if (meter_ != nullptr) meter_->left_.memory += bytes_;
  }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;

 private:
  Meter* meter_;
  std::uint64_t bytes_;
};

namespace {

template <typename T>
std::shared_ptr<T> counted(T value, std::uint64_t bytes) {
  struct Counted {
    MemoryShare share;
    T value;
    Counted(T moved, std::uint64_t size) : share(size), value(std::move(moved)) {}
  };
  const auto both = std::make_shared<Counted>(std::move(value), bytes);
  return {both, &both->value};
}

}  // namespace

Meter::Meter(const Budget& budget) : left_(budget), outer_(std::exchange(meter, this)) {}

Meter::~Meter() { meter = outer_; }

void expect_room(std::uint64_t bytes) {
  require(meter == nullptr || bytes <= meter->left_.memory, ErrorCode::over_limit,
          "the template's values take too much memory");
}

Value::Value(std::string value) {
  const std::uint64_t bytes = kStringBytes + value.capacity();
  data_ = std::shared_ptr<const std::string>(counted(std::move(value), bytes));
}

Value::Value(Function value)
    : data_(std::shared_ptr<const Function>(counted(std::move(value), kFunctionBytes))) {}

Value::Value(Function value, const Value& held) : Value(std::move(value)) {
  depth_ = checked_depth(held.depth());
  has_namespace_ = held.has_namespace();
}

Value::Value(List value) {
  int deepest = 0;
  for (const Value& item : value) {
    deepest = std::max(deepest, item.depth());
    has_namespace_ |= item.has_namespace();
  }
  depth_ = checked_depth(deepest);
  const std::uint64_t bytes = kStringBytes + kPlaceBytes * value.capacity();
  data_ = std::shared_ptr<const List>(counted(std::move(value), bytes));
}

Value Value::tuple(List value) {
  Value out(std::move(value));
  out.is_tuple_ = true;
  return out;
}

Value::Value(Dict value) {
  int deepest = 0;
  for (const auto& [key, item] : value.items) {
    deepest = std::max(deepest, item.depth());
    has_namespace_ |= item.has_namespace();
  }
  // A namespace changes, so that it could come to contain itself.
  require(!value.is_namespace || !has_namespace_, "a namespace cannot be nested in a namespace");
  has_namespace_ |= value.is_namespace;
  depth_ = checked_depth(deepest);
  const std::uint64_t bytes = kStringBytes + 2 * kPlaceBytes * value.items.capacity();
  data_ = counted(std::move(value), bytes);
}

Dict* Value::name_space() const {
  Dict* dict = pointer<Dict>();
  return dict && dict->is_namespace ? dict : nullptr;
}

const Function* Value::function() const {
  const auto* own = pointer<const Function>();
  return own == nullptr && dict() && dict()->call ? &dict()->call : own;
}

std::optional<Integer> Value::whole() const {
  if (const auto* i = integer()) return *i;
  if (const auto* b = boolean()) return Integer{*b};
  return std::nullopt;
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
  if (name_space()) return "a namespace";
  return is_tuple_ ? "a tuple" : kNames[data_.index()];
}

std::int64_t clamp_to_64(Integer value) {
  using Limits = std::numeric_limits<std::int64_t>;
  return static_cast<std::int64_t>(std::clamp<Integer>(value, Limits::min(), Limits::max()));
}

Value Arguments::get(std::size_t place, std::string_view name, Value otherwise) const {
  if (place < positional.size()) return positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return otherwise;
}

void spend(std::uint64_t steps) {
  if (meter == nullptr) return;
  require(steps <= meter->left_.steps, ErrorCode::over_limit,
          "the template makes too much text or takes too many steps");
  meter->left_.steps -= steps;
}

void spend_on(const Value& value) {
  const std::size_t size = value.string() ? value.string()->size()
                           : value.dict() ? 4 * value.dict()->items.size()
                                          : 0;
  spend(1 + size / 16);
}

void spend_on(const Arguments& arguments) {
  for (const Value& value : arguments.positional) spend_on(value);
  for (const auto& [name, value] : arguments.named) {
    spend(name.size() / 16);
    spend_on(value);
  }
}

bool equal(const Value& a, const Value& b) {
  spend_on(a);
  if (a.whole() && b.whole()) return *a.whole() == *b.whole();
  if (a.is_number() && b.is_number()) return a.as_real() == b.as_real();
  if (a.string() && b.string()) return *a.string() == *b.string();
  if (a.list() && b.list()) {
    return a.is_tuple() == b.is_tuple() &&
           std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(),
                      [&](const Value& x, const Value& y) { return equal(x, y); });
  }
  if (a.dict() && b.dict()) {
    if (a.dict() == b.dict()) return true;
    if (a.name_space() || b.name_space()) return false;
    const auto& items = a.dict()->items;
    return items.size() == b.dict()->items.size() &&
           std::all_of(items.begin(), items.end(), [&](const auto& item) {
             const Value* other = b.dict()->find_key(item.first);
             return other && equal(item.second, *other);
           });
  }
  if (a.function() || b.function()) return a.function() == b.function();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b) {
  spend_on(a);
  if (a.whole() && b.whole()) return *a.whole() < *b.whole();
  if (a.is_number() && b.is_number()) return a.as_real() < b.as_real();
  if (a.list() && b.list() && a.is_tuple() == b.is_tuple()) {
    const std::size_t common = std::min(a.list()->size(), b.list()->size());
    for (std::size_t i = 0; i < common; ++i) {
      const Value &x = (*a.list())[i], &y = (*b.list())[i];
      if (!equal(x, y)) return less(x, y);
    }
    return a.list()->size() < b.list()->size();
  }
  require(a.string() && b.string(), "{} cannot be compared with {}", a.type_name(), b.type_name());
  return *a.string() < *b.string();
}

std::string to_text(const Value& value) {
  if (const std::string* text = value.string()) {
    spend(text->size());
    return *text;
  }
  return value.is_undefined() ? "" : to_repr(value);
}

std::string to_repr(const Value& value) {
  Printer printer{nullptr, ""};
  printer.print(value, 0);
  return std::move(printer.out);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  Printer printer{&style, ""};
  printer.print(value, 0);
  return std::move(printer.out);
}

Value from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<std::int64_t>();
    case Json::value_t::number_unsigned:
      return Integer{json.get<std::uint64_t>()};
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(from_json(item));
      return list;
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.items.emplace_back(key, from_json(item));
      return dict;
    }
    default:
      return None{};
  }
}

}  // namespace ballast::jinja
