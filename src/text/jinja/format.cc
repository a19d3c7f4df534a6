#include "text/jinja/format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

constexpr std::size_t kWidest = 1000;

/// How one value is written: "%-08.3f" or "{:*>+10,.3f}".
struct Style {
  std::string fill = " ";
  char align = '\0';  ///< one of <>^=
  char sign = '-';    ///< one of "-+ "
  bool alternate = false;
  char grouping = '\0';
  std::size_t width = 0;
  std::optional<std::size_t> precision = {};
  char type = '\0';
};

__extension__ using Unsigned = unsigned __int128;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

std::size_t read_size(std::string_view text, std::size_t& at) {
  std::size_t size = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    size = 10 * size + static_cast<std::size_t>(text[at] - '0');
    require(size <= kWidest, "a format of a width or precision over {}", kWidest);
  }
  return size;
}

/// The sign, what stands before the digits ("0x"), and the rest of a number.
std::string pad_number(std::string_view lead, std::string_view digits, const Style& style) {
  const std::size_t size = lead.size() + count_characters(digits);
  const std::size_t pad = style.width > size ? style.width - size : 0;
  std::string filling;
  for (std::size_t i = 0; i < pad; ++i) filling += style.fill;
  std::string out(lead);
  if (style.align == '=') return out + filling + std::string(digits);
  out += digits;
  if (style.align == '<') return out + filling;
  if (style.align != '^') return filling + out;
  const std::size_t left = pad / 2 * style.fill.size();
  return filling.substr(0, left) + out + filling.substr(left);
}

std::string pad_text(std::string_view text, const Style& style) {
  if (style.precision) text = first_characters(text, *style.precision);
  Style padded = style;
  if (padded.align == '\0') padded.align = '<';
  return pad_number("", text, padded);
}

std::string sign_of(bool negative, const Style& style) {
  if (negative) return "-";
  return style.sign == '-' ? "" : std::string(1, style.sign);
}

/// Puts `sign` between groups of digits, counted from the right end of the whole part.
std::string group_digits(const std::string& text, char sign, std::size_t each) {
  const std::size_t whole = std::min(text.find_first_not_of("0123456789abcdefABCDEF"), text.size());
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % each == 0) out += sign;
    out += text[i];
  }
  return out;
}

std::string format_integer(Integer value, const Style& style) {
  const char type = style.type == '\0' ? 'd' : style.type;
  const bool negative = value < 0;
  const auto size = negative ? 0 - static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
  std::string digits, prefix;
  if (type == 'x' || type == 'X') digits = fmt::format("{:x}", size);
  if (type == 'o') digits = fmt::format("{:o}", size);
  if (type == 'b') digits = fmt::format("{:b}", size);
  if (style.alternate && type != 'd') prefix = {'0', type};
  if (digits.empty()) digits = fmt::format("{}", size);
  if (type == 'X') std::ranges::transform(digits, digits.begin(), ::toupper);
  if (style.precision && *style.precision > digits.size()) {
    digits.insert(0, *style.precision - digits.size(), '0');
  }
  if (style.grouping != '\0') digits = group_digits(digits, style.grouping, type == 'd' ? 3 : 4);
  return pad_number(sign_of(negative, style) + prefix, digits, style);
}

std::string format_real(double value, const Style& style, Budget& budget) {
  const bool percent = style.type == '%';
  std::string digits;
  if (style.type == '\0' && !style.precision) {
    digits = to_text(std::abs(value), budget);
  } else {
    const char type = percent ? 'f' : style.type == '\0' ? 'g' : style.type;
    budget.spend(32 + style.precision.value_or(6));
    const std::string format = fmt::format("%{}.*{}", style.alternate ? "#" : "", type);
    std::array<char, 2048> text{};
    const int length = std::snprintf(text.data(), text.size(), format.c_str(),
                                     static_cast<int>(style.precision.value_or(6)),
                                     std::abs(percent ? 100 * value : value));
    digits.assign(text.data(), std::min<std::size_t>(length, text.size() - 1));
    const bool is_whole = digits.find_first_not_of("0123456789") == std::string::npos;
    if (style.type == '\0' && is_whole) digits += ".0";
  }
  if (style.grouping != '\0') digits = group_digits(digits, style.grouping, 3);
  return pad_number(sign_of(std::signbit(value) && !std::isnan(value), style),
                    digits + (percent ? "%" : ""), style);
}

// ---- % ------------------------------------------------------------------------------------------

class PercentFormat {
 public:
  PercentFormat(std::string_view format, const Value& values, Budget& budget)
      : format_(format), values_(values), budget_(budget) {}

  std::string run() {
    std::string out;
    budget_.spend(format_.size());
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      out += format_.substr(at_, percent - at_);
      at_ = percent + 1;
      if (percent < format_.size()) {
        const std::string field = read_field();
        budget_.spend(field.size() + 1);
        out += field;
      }
    }
    const bool may_remain =
        values_.dict() || values_.is_undefined() || (values_.list() && !values_.is_tuple());
    require(used_ == count() || may_remain, "'%': not all values are used by the format");
    budget_.spend(out.size());
    return out;
  }

 private:
  std::size_t count() const { return values_.is_tuple() ? values_.list()->size() : 1; }

  Value next() {
    require(used_ < count(), "'%': more fields than values");
    return values_.is_tuple() ? (*values_.list())[used_++] : (++used_, values_);
  }

  char peek() const {
    require(at_ < format_.size(), "'%': the format ends within a field");
    return format_[at_];
  }

  std::size_t size_or_star() {
    if (peek() != '*') return read_size(format_, at_);
    ++at_;
    const auto size = next().whole();
    require(size && *size >= 0 && *size <= static_cast<Integer>(kWidest),
            "'%': * needs an integer from 0 to {}", kWidest);
    return static_cast<std::size_t>(*size);
  }

  std::string read_field() {
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t end = format_.find(')', at_);
      require(end != std::string_view::npos && values_.dict(), "'%': %(name)s needs a dict");
      const std::string name(format_.substr(at_ + 1, end - at_ - 1));
      const Value* found = values_.dict()->find(name, budget_);
      require(found != nullptr, "'%': there is no value '{}'", name.substr(0, 60));
      named = *found;
      at_ = end + 1;
    }
    Style style;
    bool zero = false;
    for (; is_one_of(peek(), "#0- +"); ++at_) {
      style.alternate = style.alternate || peek() == '#';
      zero = zero || peek() == '0';
      if (peek() == '-') style.align = '<';
      if (peek() == '+' || (peek() == ' ' && style.sign != '+')) style.sign = peek();
    }
    style.width = size_or_star();
    if (peek() == '.') {
      ++at_;
      style.precision = size_or_star();
    }
    while (is_one_of(peek(), "hlL")) ++at_;
    style.type = peek();
    ++at_;
    if (style.type == '%') return "%";
    const Value value = named ? *named : next();
    if (is_one_of(style.type, "sra")) {
      if (style.align == '\0') style.align = '>';
      return pad_text(style.type == 's' ? to_text(value, budget_) : to_repr(value, budget_), style);
    }
    if (style.type == 'c') {
      budget_.spend_on(value);
      require(value.string() && count_characters(*value.string()) == 1,
              "'%c' needs a text of one character");
      style.precision.reset();
      if (style.align == '\0') style.align = '>';
      return pad_text(*value.string(), style);
    }
    if (zero && style.align == '\0') {
      style.align = '=';
      style.fill = "0";
    }
    return format_number(value, style);
  }

  std::string format_number(const Value& value, Style style) {
    require(is_one_of(style.type, "diuoxXeEfFgG"), "'%': unknown conversion '{}'", style.type);
    require(value.is_number(), "'%{}' needs a number, not {}", style.type, value.type_name());
    if (is_one_of(style.type, "eEfFgG")) return format_real(value.as_real(), style, budget_);
    const bool decimal = is_one_of(style.type, "diu");
    if (decimal) style.type = 'd';
    if (const auto whole = value.whole()) return format_integer(*whole, style);
    require(decimal && std::abs(value.as_real()) < 1e38, "'%{}' needs an integer", style.type);
    return format_integer(static_cast<Integer>(value.as_real()), style);
  }

  std::string_view format_;
  const Value& values_;
  Budget& budget_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

// ---- {} -----------------------------------------------------------------------------------------

/// What stands behind the ':' of a field.
Style parse_style(std::string_view text) {
  Style style;
  std::size_t at = 0;
  const auto align = [&](std::size_t i) { return i < text.size() && is_one_of(text[i], "<>^="); };
  const std::string_view first = first_characters(text, 1);
  if (align(first.size())) {
    style.fill = first;
    style.align = text[first.size()];
    at = first.size() + 1;
  } else if (align(0)) {
    style.align = text[0];
    at = 1;
  }
  const auto accept = [&](std::string_view set) {
    return at < text.size() && is_one_of(text[at], set) ? text[at++] : '\0';
  };
  if (const char sign = accept("-+ ")) style.sign = sign;
  style.alternate = accept("#") != '\0';
  if (accept("0") != '\0' && style.align == '\0') {
    style.align = '=';
    style.fill = "0";
  }
  style.width = read_size(text, at);
  style.grouping = accept(",_");
  if (accept(".") != '\0') {
    require(at < text.size() && is_digit(text[at]), "format: '.' without a precision");
    style.precision = read_size(text, at);
  }
  style.type = accept("sdbcoxXneEfFgG%");
  require(at == text.size(), "format: '{}' is not understood", std::string(text.substr(0, 60)));
  return style;
}

std::string format_styled(const Value& value, std::string_view spec, Budget& budget) {
  if (spec.empty()) return to_text(value, budget);
  budget.spend_on(value);
  Style style = parse_style(spec);
  if (style.type == 'n') style.type = value.real() ? 'g' : 'd';
  if (value.string()) {
    require((style.type == '\0' || style.type == 's') && style.align != '=',
            "format: '{}' is not for a string", std::string(spec.substr(0, 60)));
    return pad_text(*value.string(), style);
  }
  require(value.is_number() && style.type != 's' && style.type != 'c', "format: '{}' is not for {}",
          std::string(spec.substr(0, 60)), value.type_name());
  const bool as_integer = style.type == '\0' || is_one_of(style.type, "dboxX");
  if (value.whole() && as_integer) {
    require(!style.precision, "format: a precision is not for integers");
    return format_integer(*value.whole(), style);
  }
  require(!is_one_of(style.type, "dboxX"), "format: '{}' needs an integer", style.type);
  return format_real(value.as_real(), style, budget);
}

class BraceFormat {
 public:
  BraceFormat(std::string_view format, const Arguments& arguments, Budget& budget)
      : format_(format), arguments_(arguments), budget_(budget) {}

  std::string run() {
    std::string out;
    budget_.spend(format_.size());
    for (std::size_t i = 0; i < format_.size(); ++i) {
      const char c = format_[i];
      if ((c == '{' || c == '}') && i + 1 < format_.size() && format_[i + 1] == c) {
        out += c;
        ++i;
      } else if (c == '{') {
        const std::size_t end = format_.find_first_of("{}", i + 1);
        require(end != std::string_view::npos && format_[end] == '}',
                "format: '{{' without '}}', or fields within fields");
        const std::string text = field(format_.substr(i + 1, end - i - 1));
        budget_.spend(text.size() + 1);
        out += text;
        i = end;
      } else {
        require(c != '}', "format: '}}' without '{{'");
        out += c;
      }
    }
    return out;
  }

 private:
  std::string field(std::string_view text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string_view spec = colon < text.size() ? text.substr(colon + 1) : "";
    std::string_view name = text.substr(0, colon);
    const std::size_t mark = name.find('!');
    const std::string_view conversion = mark < name.size() ? name.substr(mark + 1) : "";
    require(mark == std::string_view::npos || conversion == "s" || conversion == "r",
            ErrorCode::unsupported, "format: conversion '{}' is not supported",
            std::string(conversion.substr(0, 60)));
    Value value = find(name.substr(0, mark));
    if (conversion == "s") value = to_text(value, budget_);
    if (conversion == "r") value = to_repr(value, budget_);
    return format_styled(value, spec, budget_);
  }

  /// "", "0", "name", each with ".attribute" and "[item]" behind it.
  Value find(std::string_view path) {
    std::size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, end);
    Value value;
    const auto place = first.empty() ? std::optional<Value>(Value(next_++)) : as_index(first);
    if (place) {
      const auto& all = arguments_.positional;
      const Integer i = *place->integer();
      require(i < static_cast<Integer>(all.size()), "format: more fields than values");
      value = all[static_cast<std::size_t>(i)];
    } else {
      const auto& all = arguments_.named;
      budget_.spend(all.size() / 4 + 1);
      const auto found =
          std::ranges::find_if(all, [&](const auto& each) { return each.first == first; });
      require(found != all.end(), "format: there is no value '{}'",
              std::string(first.substr(0, 60)));
      value = found->second;
    }
    while (end < path.size()) {
      const bool is_item = path[end] == '[';
      const std::size_t begin = end + 1;
      end =
          std::min(is_item ? path.find(']', begin) : path.find_first_of(".[", begin), path.size());
      const std::string part(path.substr(begin, end - begin));
      if (is_item) {
        value = item_at(value, as_index(part).value_or(Value(part)), budget_);
        end = std::min(end + 1, path.size());
      } else {
        value = attribute_of(value, part, budget_);
      }
    }
    return value;
  }

  static std::optional<Value> as_index(std::string_view text) {
    const bool digits = !text.empty() && std::ranges::all_of(text, is_digit);
    const auto value = digits ? parse_integer(text, 10) : std::nullopt;
    return value && value->integer() ? value : std::nullopt;
  }

  std::string_view format_;
  const Arguments& arguments_;
  Budget& budget_;
  std::int64_t next_ = 0;
};

}  // namespace

std::string percent_format(std::string_view format, const Value& values, Budget& budget) {
  return PercentFormat(format, values, budget).run();
}

std::string brace_format(std::string_view format, const Arguments& arguments, Budget& budget) {
  return BraceFormat(format, arguments, budget).run();
}

}  // namespace ballast::jinja
