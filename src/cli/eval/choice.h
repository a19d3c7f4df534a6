// Common parts of the experiments on multiple choice.
#pragma once

#include <string>
#include <vector>

#include "cli/eval/experiment.h"
#include "eval/tasks/choice_tasks.h"

namespace ballast::cli {

struct ChoiceFlags {
  SampleFlags flags;
  std::vector<std::string> data;
  std::string shots_file;
  ChoiceOptions choice;

  void add_to(CLI::App& app, const std::string& methods, const Memory& sizes);
};

void run_choice(ChoiceFlags& flags, const std::string& name, const std::string& title);

}  // namespace ballast::cli
