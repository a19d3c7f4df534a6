#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "text/jinja/builtins.h"

namespace ballast::jinja {
namespace {

bool is_integer(const Value& value) { return value.integer() || value.boolean(); }

std::int64_t as_integer(const Value& value) {
  return value.integer() ? *value.integer() : static_cast<std::int64_t>(*value.boolean());
}

[[noreturn]] void cannot(const std::string& op, const Value& left, const Value& right) {
  fail("'{}' is not defined for {} and {}", op, left.type_name(), right.type_name());
}

std::int64_t integer_result(const std::string& op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
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
      overflow = op == "//" && __builtin_sub_overflow(0, a, &result);
    } else {
      const std::int64_t rest = a % b;
      const bool is_below = rest != 0 && (rest < 0) != (b < 0);
      result = op == "//" ? a / b - is_below : rest + (is_below ? b : 0);
    }
  }
  require(!overflow, "{} {} {} is too large", a, op, b);
  return result;
}

Value real_result(const std::string& op, double a, double b) {
  require(b != 0.0 || (op != "/" && op != "//" && op != "%"), "division by zero");
  double result = 0.0;
  if (op == "+") result = a + b;
  if (op == "-") result = a - b;
  if (op == "*") result = a * b;
  if (op == "/") result = a / b;
  if (op == "//") result = std::floor(a / b);
  if (op == "%") result = a - b * std::floor(a / b);
  if (op == "**") result = std::pow(a, b);
  require(std::isfinite(result), "{} {} {} is not a finite number", a, op, b);
  return result;
}

Value power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    return real_result("**", static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base >= -1 && base <= 1) return exponent == 0 ? 1 : exponent % 2 == 0 ? base * base : base;
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) result = integer_result("*", result, base);
  return result;
}

Value repeat(const Value& value, std::int64_t count, Budget& budget) {
  const auto times = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
  const std::size_t size = value.string() ? value.string()->size() : 16 * value.list()->size();
  require(size == 0 || times <= (std::uint64_t{1} << 40) / size, "repeating {} times is too much",
          times);
  budget.spend(size * times + 1);
  std::string text;
  List list;
  for (std::uint64_t i = 0; size > 0 && i < times; ++i) {
    if (value.string()) {
      text += *value.string();
    } else {
      list.insert(list.end(), value.list()->begin(), value.list()->end());
    }
  }
  return value.string() ? Value(std::move(text)) : Value(std::move(list));
}

Value arithmetic(const std::string& op, const Value& left, const Value& right, Budget& budget) {
  if (left.is_number() && right.is_number()) {
    if (is_integer(left) && is_integer(right) && op != "/") {
      const std::int64_t a = as_integer(left);
      const std::int64_t b = as_integer(right);
      return op == "**" ? power(a, b) : Value(integer_result(op, a, b));
    }
    return real_result(op, left.as_real(), right.as_real());
  }
  if (op == "+" && left.string() && right.string()) {
    budget.spend(left.string()->size() + right.string()->size());
    return *left.string() + *right.string();
  }
  if (op == "+" && left.list() && right.list()) {
    budget.spend(16 * (left.list()->size() + right.list()->size()));
    List list = *left.list();
    list.insert(list.end(), right.list()->begin(), right.list()->end());
    return list;
  }
  const bool left_repeats = left.string() || left.list();
  if (op == "*" && left_repeats && is_integer(right))
    return repeat(left, as_integer(right), budget);
  if (op == "*" && (right.string() || right.list()) && is_integer(left)) {
    return repeat(right, as_integer(left), budget);
  }
  cannot(op, left, right);
}

}  // namespace

Value apply_operator(const std::string& op, const Value& left, const Value& right, Budget& budget) {
  if (op == "==") return equal(left, right, budget);
  if (op == "!=") return !equal(left, right, budget);
  if (op == "<") return less(left, right, budget);
  if (op == ">") return less(right, left, budget);
  if (op == "<=") return !less(right, left, budget);
  if (op == ">=") return !less(left, right, budget);
  if (op == "in") return contains(right, left, budget);
  if (op == "not in") return !contains(right, left, budget);
  if (op == "~") return to_text(left, budget) + to_text(right, budget);
  return arithmetic(op, left, right, budget);
}

Value negate(const Value& value) {
  require(value.is_number(), "'-' is not defined for {}", value.type_name());
  return is_integer(value) ? Value(integer_result("-", 0, as_integer(value)))
                           : Value(-value.as_real());
}

Value item_at(const Value& object, const Value& index, Budget& budget) {
  budget.spend_on(object);
  if (index.string()) return member(object, *index.string());
  require(!object.is_undefined(), "an item of an undefined value");
  if (!is_integer(index) || object.dict()) return {};
  std::int64_t i = as_integer(index);
  if (const std::string* text = object.string()) {
    const auto all = characters(*text);
    budget.spend(16 * all.size());
    if (i < 0) i += static_cast<std::int64_t>(all.size());
    return i < 0 || i >= static_cast<std::int64_t>(all.size()) ? Value() : Value(all[i]);
  }
  if (!object.list()) return {};
  const auto size = static_cast<std::int64_t>(object.list()->size());
  if (i < 0) i += size;
  return i < 0 || i >= size ? Value() : (*object.list())[i];
}

Value slice(const Value& object, const Value& first, const Value& last, const Value& step,
            Budget& budget) {
  require(object.list() || object.string(), "{} cannot be sliced", object.type_name());
  const List items = items_of(object, budget);
  const auto size = static_cast<std::int64_t>(items.size());
  const auto number = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    require(is_integer(value), "a slice by {}; expected integers", value.type_name());
    return as_integer(value);
  };
  const std::int64_t by = number(step, 1);
  require(by != 0 && by > -size - 2, "a slice with step {}", by);
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
  List chosen;
  for (std::int64_t i = begin; by > 0 ? i < end : i > end; i += std::min(by, size + 1)) {
    chosen.push_back(items[i]);
  }
  if (!object.string()) return chosen;
  std::string text;
  for (const Value& item : chosen) text += *item.string();
  budget.spend(text.size());
  return text;
}

}  // namespace ballast::jinja
