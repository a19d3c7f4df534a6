// Common parts of the two experiments on LongBench.
#pragma once

#include <string>
#include <vector>

#include "cli/eval/experiment.h"
#include "eval/data/benchmarks.h"

namespace ballast::cli {

struct LongBenchFlags {
  SampleFlags flags;
  std::vector<std::string> data;
  LongBenchOptions read;

  /// Adds all flags. `read.tasks` holds the default tasks.
  void add_to(CLI::App& app, const std::string& methods, const Memory& sizes);
};

/// `name` and `title`: of the experiment.
void run_longbench(LongBenchFlags& o, const std::string& name, const std::string& title,
                   const std::vector<std::string>& notes);

}  // namespace ballast::cli
