// What `ballast` and other programs with its options and manners have in common.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace ballast::cli {

struct Program {
  std::string description;  ///< of --help
  std::string footer;
  std::span<const AddCommand> commands;  ///< in the order in which --help shows them
  /// May change the words of the command line, after `help` and `version` have become options, or
  /// hand over to another program.
  std::function<void(std::vector<std::string>& words)> prepare;
};

/// Runs the command of `program` that the command line selects and reports an error as one line on
/// standard error. Returns the exit code: 1 failure, 2 wrong usage, 128 + n signal n.
int run_program(const Program& program, int argc, char** argv);

}  // namespace ballast::cli
