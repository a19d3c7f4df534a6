// Commands of the program ballast-eval (lab/), which `ballast` starts for them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::cli {

/// Names and titles for --help, completions and "did you mean".
void add_lab(CLI::App& parent, std::function<void()>& task);

/// The first word that names a command: neither an option nor the value of --threads. Empty if
/// there is none.
std::string_view command_word(std::span<const std::string> words);

/// Becomes ballast-eval with these words if they are a command of it; else returns.
void hand_over_to_lab(std::vector<std::string>& words);

/// Becomes ballast-eval, of the folder of this program or of PATH, with these words. Throws Error
/// that names `what` if it cannot be started.
[[noreturn]] void start_lab(std::span<const std::string> words, std::string_view what);

}  // namespace ballast::cli
