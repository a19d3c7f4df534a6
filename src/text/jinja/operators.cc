#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

[[noreturn]] void cannot(const std::string& op, const Value& left, const Value& right) {
  fail("'{}' is not defined for {} and {}", op, left.type_name(), right.type_name());
}

Integer integer_result(const std::string& op, Integer a, Integer b) {
  Integer result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else {  // "//" and "%" round towards minus infinity
    require(b != 0, "division by zero");
    if (b == -1) {
      overflow = op == "//" && __builtin_sub_overflow(Integer{0}, a, &result);
    } else {
      const Integer rest = a % b;
      const bool is_below = rest != 0 && (rest < 0) != (b < 0);
      result = op == "//" ? a / b - is_below : rest + (is_below ? b : 0);
    }
  }
  require(!overflow, "{} {} {} is too large", a, op, b);
  return result;
}

// Python's a // b and a % b, which agree with each other despite rounding.
std::pair<double, double> floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0.0 && (rest < 0.0) != (b < 0.0)) {
    rest += b;
    quotient -= 1.0;
  }
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1.0;
  return {whole, rest == 0.0 ? std::copysign(0.0, b) : rest};
}

Value real_result(const std::string& op, double a, double b) {
  require(b != 0.0 || (op != "/" && op != "//" && op != "%"), "division by zero");
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  if (op == "//") return floor_divide(a, b).first;
  if (op == "%") return floor_divide(a, b).second;
  const double power = std::pow(a, b);
  require(std::isfinite(power) || !std::isfinite(a) || !std::isfinite(b),
          "{} ** {} is not a finite number", a, b);
  return power;
}

Value power(Integer base, Integer exponent) {
  if (exponent < 0) {
    return real_result("**", static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base >= -1 && base <= 1) return exponent == 0 ? 1 : exponent % 2 == 0 ? base * base : base;
  Integer result = 1;
  for (Integer i = 0; i < exponent; ++i) {
    spend(1);
    result = integer_result("*", result, base);
  }
  return result;
}

Value repeat(const Value& value, Integer count) {
  const auto times = static_cast<std::uint64_t>(std::max<std::int64_t>(clamp_to_64(count), 0));
  const std::size_t size = value.string() ? value.string()->size() : 16 * value.list()->size();
  const std::size_t bytes = value.string() ? size : sizeof(Value) * value.list()->size();
  require(size == 0 || times <= (std::uint64_t{1} << 40) / size, "repeating {} times is too much",
          times);
  spend(size * times + 1);
  expect_room(bytes * times);
  std::string text;
  List list;
  value.string() ? text.reserve(bytes * times) : list.reserve(value.list()->size() * times);
  for (std::uint64_t i = 0; size > 0 && i < times; ++i) {
    if (value.string()) {
      text += *value.string();
    } else {
      list.insert(list.end(), value.list()->begin(), value.list()->end());
    }
  }
  if (value.string()) return text;
  return value.is_tuple() ? Value::tuple(std::move(list)) : Value(std::move(list));
}

// The characters at begin, begin + stride and so on, `count` of them.
Value slice_text(std::string_view text, std::int64_t begin, std::int64_t stride,
                 std::int64_t count) {
  if (count == 0) return "";
  const std::int64_t first = std::min(begin, begin + (count - 1) * stride);
  text.remove_prefix(first_characters(text, static_cast<std::size_t>(first)).size());
  if (stride == 1) {
    text = first_characters(text, static_cast<std::size_t>(count));
    spend(text.size());
    return std::string(text);
  }
  std::vector<std::string_view> chosen;  // in the order of the text
  for (std::int64_t i = 0; i < count; ++i) {
    spend(16);
    chosen.push_back(first_characters(text, 1));
    if (i + 1 == count) break;
    text.remove_prefix(first_characters(text, static_cast<std::size_t>(std::abs(stride))).size());
  }
  if (stride < 0) std::reverse(chosen.begin(), chosen.end());
  std::string out;
  for (const std::string_view character : chosen) out += character;
  return out;
}

Value arithmetic(const std::string& op, const Value& left, const Value& right) {
  const auto a = left.whole(), b = right.whole();
  if (a && b && op == "**") return power(*a, *b);
  if (a && b && op != "/") return integer_result(op, *a, *b);
  if (left.is_number() && right.is_number()) {
    if (op == "%" || op == "//") spend(64);  // of reals, one bit of the quotient at a time
    return real_result(op, left.as_real(), right.as_real());
  }
  if (op == "+" && left.string() && right.string()) {
    spend(left.string()->size() + right.string()->size());
    return *left.string() + *right.string();
  }
  if (op == "+" && left.list() && right.list() && left.is_tuple() == right.is_tuple()) {
    spend(16 * (left.list()->size() + right.list()->size()));
    List list = *left.list();
    list.insert(list.end(), right.list()->begin(), right.list()->end());
    return left.is_tuple() ? Value::tuple(std::move(list)) : Value(std::move(list));
  }
  if (op == "*" && (left.string() || left.list()) && b) return repeat(left, *b);
  if (op == "*" && (right.string() || right.list()) && a) return repeat(right, *a);
  cannot(op, left, right);
}

}  // namespace

Value apply_operator(const std::string& op, const Value& left, const Value& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "<") return less(left, right);
  if (op == ">") return less(right, left);
  if (op == "<=") return !less(right, left);
  if (op == ">=") return !less(left, right);
  if (op == "in") return contains(right, left);
  if (op == "not in") return !contains(right, left);
  if (op == "~") return to_text(left) + to_text(right);
  return arithmetic(op, left, right);
}

Value negate(const Value& value) {
  require(value.is_number(), "'-' is not defined for {}", value.type_name());
  if (const auto whole = value.whole()) return integer_result("-", 0, *whole);
  return -value.as_real();
}

Value item_at(const Value& object, const Value& index) {
  spend_on(object);
  require(!object.is_undefined(), "'{}' of an undefined value",
          index.string() ? index.string()->substr(0, 60) : "an item");
  if (object.dict() && !object.name_space() && is_key(index)) {
    if (const Value* found = object.dict()->find_key(index)) return *found;
  }
  if (index.string()) return attribute_of(object, *index.string());
  if (!index.whole() || object.dict()) return {};
  Integer i = *index.whole();
  if (const std::string* text = object.string()) {
    const auto size = static_cast<Integer>(count_characters(*text));
    if (i < 0) i += size;
    if (i < 0 || i >= size) return {};
    std::string_view rest = *text;
    rest.remove_prefix(first_characters(rest, static_cast<std::size_t>(i)).size());
    return std::string(first_characters(rest, 1));
  }
  if (!object.list()) return {};
  if (i < 0) i += static_cast<Integer>(object.list()->size());
  const bool inside = i >= 0 && i < static_cast<Integer>(object.list()->size());
  return inside ? (*object.list())[static_cast<std::size_t>(i)] : Value();
}

Value slice(const Value& object, const Value& first, const Value& last, const Value& step) {
  require(object.list() || object.string(), "{} cannot be sliced", object.type_name());
  spend_on(object);
  const std::string* text = object.string();
  const auto size =
      static_cast<std::int64_t>(text ? count_characters(*text) : object.list()->size());
  const auto number = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    require(value.whole().has_value(), "a slice by {}; expected integers", value.type_name());
    return clamp_to_64(*value.whole());
  };
  const std::int64_t by = number(step, 1);
  require(by != 0, "a slice with step 0");
  const std::int64_t lowest = by > 0 ? 0 : -1;
  const std::int64_t highest = by > 0 ? size : size - 1;
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    std::int64_t i = number(value, 0);
    if (i < 0) i = i < -size ? lowest : i + size;
    return std::clamp(i, lowest, std::max(lowest, highest));
  };
  const std::int64_t begin = bound(first, by > 0 ? 0 : size - 1);
  const std::int64_t end = bound(last, by > 0 ? size : -1);
  const std::int64_t stride = std::clamp(by, -size - 1, size + 1);
  const std::int64_t way = by > 0 ? end - begin : begin - end;
  const std::int64_t count = way <= 0 ? 0 : (way - 1) / std::abs(stride) + 1;
  if (text) return slice_text(*text, begin, stride, count);
  spend(static_cast<std::uint64_t>(count));
  List chosen;
  chosen.reserve(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < count; ++k) {
    chosen.push_back((*object.list())[static_cast<std::size_t>(begin + k * stride)]);
  }
  return object.is_tuple() ? Value::tuple(std::move(chosen)) : Value(std::move(chosen));
}

}  // namespace ballast::jinja
