// Quantities formatted for people.
#pragma once

#include <cstdint>
#include <string>

namespace ballast {

/// With this many digits after the point: "12.50"; from 1e15 on "1.00e+15", as 1e308 would take 309
/// digits.
std::string format_fixed(double x, int decimals);

/// "512 B", "3.2 KiB", "1.50 GiB": three digits.
std::string format_bytes(double bytes);
/// "85 µs", "12.3 ms", "4.56 s", "3 min 20 s", "2 h 05 min".
std::string format_seconds(double seconds);
/// Digits in groups of three: "16,384".
std::string format_count(std::uint64_t count);
/// Three significant digits, without an exponent where that is readable: "0.0123", "1.2e-07".
std::string format_number(double x);
/// "6.25%"
std::string format_percent(double fraction);

}  // namespace ballast
