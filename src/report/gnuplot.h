// Running gnuplot.
#pragma once

#include <string>

namespace ballast {

/// Whether PATH has a program of that name.
bool is_installed(const char* program);

/// Runs a script and returns gnuplot's standard output. Throws Error with gnuplot's message.
std::string run_gnuplot(const std::string& script);

}  // namespace ballast
