// Throwing ballast::Error with a formatted message.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "ballast/error.h"

namespace ballast {

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> message, Args&&... args) {
  throw Error(code, fmt::format(message, std::forward<Args>(args)...));
}

/// With ErrorCode::invalid_argument.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

template <typename... Args>
void require(bool condition, ErrorCode code, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(code, message, std::forward<Args>(args)...);
}

/// Checks something about the caller's input; the message says what was expected.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(message, std::forward<Args>(args)...);
}

/// For the handlers of functions that read a file: what is an invalid argument elsewhere is here a
/// bad file. Other codes stay.
[[noreturn]] void rethrow_from_file(const Error& error);

}  // namespace ballast
