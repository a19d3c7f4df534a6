// Running gnuplot.
#pragma once

#include <string>

namespace ballast {

/// Whether a program of that name would be found.
bool is_installed(const char* program);

/// What gnuplot writes to standard output for a script. Throws Error with its own message.
std::string run_gnuplot(const std::string& script);

}  // namespace ballast
