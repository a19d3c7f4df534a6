// Guessing what a file is, for messages that help.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ballast {

/// What the file seems to be, such as "a GGUF file", with a remedy where there is a usual one; ""
/// when nothing is recognised.
std::string_view sniff(std::span<const std::byte> file);

}  // namespace ballast
