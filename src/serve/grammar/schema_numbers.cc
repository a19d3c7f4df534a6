#include "serve/grammar/schema_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "serve/http/api_error.h"

namespace ballast::serve {
namespace {

/// Of bounds of integers and scaled numbers: below 10^18, so that ten times as much is a uint64.
constexpr std::int64_t kLargest = 999'999'999'999'999'999;
constexpr std::uint8_t kDecimals = 15;

/// A bound; `excluded`: the number itself is outside.
struct Bound {
  double number = 0;
  std::optional<std::int64_t> whole = {};  ///< exactly, where it is one
  bool excluded = false;
};
std::optional<Bound> bound(Fields& f, const char* name, const char* exclusive, bool low) {
  std::optional<Bound> out;
  for (const bool excluded : {false, true}) {
    const char* key = excluded ? exclusive : name;
    const Json* value = f.find(key);
    if (value == nullptr) continue;
    if (!value->is_number())
      refuse(f.full(key), "{}: {} is not a number", f.full(key), shown(*value));
    const double number = value->get<double>();
    const bool tighter = !out || (low ? number >= out->number : number <= out->number);
    if (!tighter) continue;
    out = Bound{number, {}, excluded};
    const bool fits = std::abs(number) < static_cast<double>(kLargest);
    if (value->is_number_integer() && fits) out->whole = value->get<std::int64_t>();
  }
  return out;
}

/// multipleOf, as a number of units of a last decimal. False: there is none.
bool add_step(Fields& f, bool integer, JsonRules::Numbers& out) {
  const Json* value = f.find("multipleOf");
  if (value == nullptr || (integer && *value == 1)) return false;
  const std::string name = f.full("multipleOf");
  double step = value->is_number() ? value->get<double>() : 0;
  while (step > 0 && step != std::trunc(step) && out.decimals < kDecimals) {
    ++out.decimals;
    step = std::strtod(fmt::format("{}e{}", value->get<double>(), out.decimals).c_str(), nullptr);
  }
  if (!(step >= 1 && step < 1e15) || step != std::trunc(step)) {
    refuse(name, "{}: {} is not a number from 1e-15 to 1e15", name, shown(*value));
  }
  out.step = static_cast<std::uint64_t>(step);
  if (!integer) return true;
  // Of the integers: multiples of 0.5 are all, of 1.5 those of 3.
  std::uint64_t unit = 1;
  for (; out.decimals > 0; --out.decimals) unit *= 10;
  out.step /= std::gcd(out.step, unit);
  return out.step > 1;
}

}  // namespace

bool is_within(Fields& f, const Json& value) {
  const double number = value.get<double>();
  const auto low = bound(f, "minimum", "exclusiveMinimum", true);
  const auto high = bound(f, "maximum", "exclusiveMaximum", false);
  if (low && (number < low->number || (low->excluded && number == low->number))) return false;
  if (high && (number > high->number || (high->excluded && number == high->number))) return false;
  const Json* step = f.find("multipleOf");
  const double times = step == nullptr ? 0 : number / step->get<double>();
  return std::abs(times - std::round(times)) < 1e-9;
}

std::optional<JsonRules::Numbers> numbers_of(Fields& f, bool integer, const std::string& where) {
  const auto low = bound(f, "minimum", "exclusiveMinimum", true);
  const auto high = bound(f, "maximum", "exclusiveMaximum", false);
  JsonRules::Numbers out;
  const bool stepped = add_step(f, integer, out);
  if (!low && !high && !stepped) return std::nullopt;
  // As many decimals as a double of the larger bound has; six where a side has none.
  const double largest =
      std::max(low ? std::abs(low->number) : 1e9, high ? std::abs(high->number) : 1e9);
  double scale = 1;
  for (std::uint8_t i = 0; i < out.decimals; ++i) scale *= 10;
  while (!integer && !stepped && out.decimals < kDecimals && largest * scale * 10 < 9e15) {
    scale *= 10;
    ++out.decimals;
  }
  const auto scaled = [&](const Bound& bound, bool up) {
    const double rounded = std::round(bound.number * scale);
    if (std::abs(rounded) >= static_cast<double>(kLargest)) {
      return rounded < 0 ? -kLargest : kLargest;
    }
    // Its decimal text is the double that is nearest to it, so that this says what a reader sees.
    std::int64_t at = static_cast<std::int64_t>(rounded);
    if (scale == 1 && bound.whole) return *bound.whole + (!bound.excluded ? 0 : up ? 1 : -1);
    const double seen = static_cast<double>(at) / scale;
    const bool outside = up ? seen < bound.number : seen > bound.number;
    if (outside || (bound.excluded && seen == bound.number)) at += up ? 1 : -1;
    return at;
  };
  out.low = low ? scaled(*low, true) : -kLargest;
  out.high = high ? scaled(*high, false) : kLargest;
  const auto step = static_cast<std::int64_t>(out.step);
  const std::int64_t first = out.low / step + (out.low % step > 0 ? 1 : 0);
  if (out.low > out.high || first > out.high / step || first * step > out.high) {
    refuse(where, "{}: no number of at most 18 digits lies between its bounds", where);
  }
  return out;
}

}  // namespace ballast::serve
