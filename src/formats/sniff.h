// Guesses the kind of a file, for error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ballast {

/// The apparent kind, such as "a GGUF file", with the usual remedy if there is one; "" if unknown.
std::string_view sniff(std::span<const std::byte> file);

}  // namespace ballast
