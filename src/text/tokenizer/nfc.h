// Unicode normal form C, in time that grows as n log n at worst.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ballast {

/// ICU moves each combining mark before those of higher classes, one by one: the time for a run of
/// marks grows with its square. Text in any script has fewer in a row (UAX #15, the Stream-Safe
/// Text Format, allows 30).
inline constexpr std::size_t kLongestMarks = 32;

/// The text with each run of over `longest` marks decomposed and in canonical order (Unicode,
/// section 3.11): its normal forms are those of `text`. Bytes that are not UTF-8 end a run and stay
/// as they are.
std::string order_marks(std::string_view text, std::size_t longest = kLongestMarks);

/// Normal form C of UTF-8. Throws Error if ICU fails.
std::string to_nfc(std::string_view text);

}  // namespace ballast
