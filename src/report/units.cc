#include "report/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace ballast {
namespace {

/// Three digits of a number in [0, 1024).
std::string three_digits(double x) { return format_fixed(x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0); }

constexpr double kHuge = 1e15;

}  // namespace

std::string format_fixed(double x, int decimals) {
  return std::abs(x) < kHuge ? fmt::format("{:.{}f}", x, decimals) : fmt::format("{:.2e}", x);
}

std::string format_bytes(double bytes) {
  static constexpr std::array units = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return format_fixed(bytes, 0) + " B";
  std::size_t unit = 0;
  double x = bytes / 1024;
  while (x >= 1023.5 && unit + 1 < units.size()) {
    x /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(x), units[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds > 0 && seconds < 9.95e-6) return fmt::format("{:.2f} µs", seconds * 1e6);
  if (seconds < 999.5e-6) return format_fixed(seconds * 1e6, 0) + " µs";
  if (seconds < 0.9995) return fmt::format("{} ms", three_digits(seconds * 1e3));
  if (seconds < 59.95) return fmt::format("{} s", three_digits(seconds));
  if (seconds >= kHuge) return format_fixed(seconds, 0) + " s";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t i = digits.size(); i > 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string format_number(double x) {
  if (x == 0) return "0";
  if (!std::isfinite(x)) return fmt::format("{}", x);
  const double size = std::abs(x);
  if (size < 9.995e-5 || size >= 1e6) return fmt::format("{:.1e}", x);
  // Digits after the point, so that three count.
  const int decimals = std::max(0, 2 - static_cast<int>(std::floor(std::log10(size * 1.0005))));
  return fmt::format("{:.{}f}", x, decimals);
}

std::string format_percent(double fraction) {
  return fmt::format("{}%", three_digits(100 * fraction));
}

}  // namespace ballast
