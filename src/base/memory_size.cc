#include "ballast/memory_size.h"

#include <cmath>

#include "base/fail.h"
#include "base/parse_double.h"

namespace ballast {
namespace {

/// A decimal number at the start of `text`, which is shortened by it. NaN: there is none.
double take_number(std::string_view& text) {
  double value = 0;
  const auto [end, error] =
      parse_double(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || text.starts_with('-')) return std::nan("");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Bytes of a unit such as K, MB or GiB at the start of `text`. 0: there is none.
double take_unit(std::string_view& text) {
  double unit = 0;
  if (text.starts_with('K') || text.starts_with('k')) unit = 1024.0;
  if (text.starts_with('M')) unit = 1024.0 * 1024.0;
  if (text.starts_with('G')) unit = 1024.0 * 1024.0 * 1024.0;
  if (unit != 0) text.remove_prefix(1);
  if (unit != 0 && text.starts_with("iB")) {
    text.remove_prefix(2);
  } else if (text.starts_with('B')) {
    text.remove_prefix(1);
    if (unit == 0) unit = 1;
  }
  return unit;
}

}  // namespace

MemorySize MemorySize::parse(std::string_view text) {
  constexpr const char* kForms = "write 1/8, 0.125 or 12% of the exact cache, 256M, or 40K/token";
  std::string_view rest = text;
  MemorySize out;
  const double number = take_number(rest);
  require(std::isfinite(number), "'{}' is not an amount of memory; {}", text, kForms);
  if (rest == "%") {
    out.amount = number / 100;
  } else if (rest.empty()) {
    require(text.find('.') != std::string_view::npos || number == 0,
            "'{}' could be a share or bytes; {}", text, kForms);
    out.amount = number;
  } else if (const double unit = take_unit(rest); unit != 0) {
    out.unit = rest == "/token" ? Unit::per_token : Unit::bytes;
    require(rest.empty() || rest == "/token", "'{}' is not an amount of memory; {}", text, kForms);
    out.amount = number * unit;
  } else {
    require(rest.starts_with('/'), "'{}' is not an amount of memory; {}", text, kForms);
    rest.remove_prefix(1);
    const double divisor = take_number(rest);
    require(rest.empty() && divisor > 0, "'{}' is not an amount of memory; {}", text, kForms);
    out.amount = number / divisor;
  }
  require(out.amount > 0 && std::isfinite(out.amount), "an amount of memory of {}; {}", text,
          kForms);
  require(out.unit != Unit::share || out.amount <= 1,
          "a cache of {} of the exact one is larger than it; {}", text, kForms);
  return out;
}

std::size_t MemorySize::bytes(std::size_t tokens, std::size_t exact) const {
  double bytes = amount;
  if (unit == Unit::share) bytes *= static_cast<double>(exact);
  if (unit == Unit::per_token) bytes *= static_cast<double>(tokens);
  constexpr double kMost = 9e18;
  return static_cast<std::size_t>(std::min(std::floor(bytes), kMost));
}

}  // namespace ballast
