// Throwing ballast::Error with a formatted message.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "ballast/error.h"

namespace ballast {

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

/// Checks something about the caller's input; the message says what was expected.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(message, std::forward<Args>(args)...);
}

}  // namespace ballast
