// Runs the program with text on its standard input.
#pragma once

#include <string>
#include <vector>

#include "cli/program.h"

namespace ballast::test {

using Said = ProgramResult;
using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Said run_with(const Words& arguments, const std::string& input = "") {
  return Program(arguments, input).wait();
}

}  // namespace ballast::test
