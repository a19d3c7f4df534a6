// A command as one line.
#pragma once

#include <span>
#include <string>

namespace ballast {

/// Words as one line that a shell takes.
std::string shell_line(std::span<const std::string> words);

}  // namespace ballast
