// Experiments inside another program, such as a Python interpreter.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace ballast::cli {

/// Runs `ballast eval WORDS...` in this thread and returns what it prints. `advance` gets the
/// fraction that is done, from any thread; what it throws ends the experiment. Throws Error, on
/// wrong usage with the text of the program's.
std::string run_eval(std::span<const std::string> words,
                     const std::function<void(double)>& advance);

}  // namespace ballast::cli
