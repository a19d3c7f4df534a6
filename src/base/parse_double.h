// std::from_chars() of doubles, which libc++ has not everywhere.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string>

namespace ballast {

/// The same by strtod(), where LC_NUMERIC is "C", as programs have it until they ask for another.
inline std::from_chars_result parse_double_by_strtod(const char* begin, const char* end,
                                                     double& value, std::chars_format format) {
  const char* beyond = format == std::chars_format::fixed ? "eExX" : "xX";
  std::string text(begin, end);
  text.resize(std::min(text.find_first_of(beyond), text.size()));
  char* stop = text.data();
  errno = 0;
  const bool begins = !text.empty() && text[0] != '+' && static_cast<unsigned char>(text[0]) > ' ';
  const double read = begins ? std::strtod(text.c_str(), &stop) : 0;
  const char* last = begin + (stop - text.data());
  if (last == begin) return {begin, std::errc::invalid_argument};
  if (errno == ERANGE) return {last, std::errc::result_out_of_range};
  value = read;
  return {last, std::errc()};
}

/// `format`: general or fixed.
inline std::from_chars_result parse_double(const char* begin, const char* end, double& value,
                                           std::chars_format format = std::chars_format::general) {
#if defined(__cpp_lib_to_chars)
  return std::from_chars(begin, end, value, format);
#else
  return parse_double_by_strtod(begin, end, value, format);
#endif
}

}  // namespace ballast
