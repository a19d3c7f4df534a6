// Programs of others that turn bytes into bytes, within limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// What a program may take. A stranger's file of a few KB can ask it for years of work.
struct ChildLimits {
  std::size_t output = std::size_t{64} << 20;  ///< bytes
  std::size_t memory = std::size_t{1} << 30;   ///< bytes of its address space
  std::chrono::seconds processor{20};          ///< seconds of its own work
  std::chrono::seconds time{60};               ///< by the clock
};

/// What a program found in PATH writes to its standard output, given `input` through memory as its
/// standard input; nothing if it fails or writes more than it may. Its messages are dropped. It
/// ends with this process, however that ends, and is killed where Interruption::check() throws.
/// `words`: the program and its arguments; `package`: of Debian, that has it; `name`: of the input.
/// Throws Error: unsupported where there is no such program, bad_file where it takes longer than it
/// may.
std::optional<std::string> output_of(std::vector<std::string> words, const std::string& package,
                                     std::string_view input, const std::string& name,
                                     const ChildLimits& limits = {});

}  // namespace ballast
