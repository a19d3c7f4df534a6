// The targets of ./lab/bench.sh and the results of one run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/json.h"

namespace ballast {

/// One result. `name` tells it from the others of its line: "int4, d = 64".
struct Measured {
  std::string name;
  double value;
};

/// One line of the table: a bound and the results that are held against it, all of one kind.
struct Target {
  enum class Kind { percent, times, seconds };
  std::string part;  ///< the section of the table; its lines are consecutive
  std::string what;
  Kind kind = Kind::percent;
  bool at_least = true;         ///< false: at most
  std::optional<double> bound;  ///< none: reported only
  std::vector<Measured> measured;

  bool reaches(double value) const;
  bool reached() const;
};

/// The targets that `files` have results for. Keys are file names without "bench-" and ".json":
/// "attention", "matmul", "balance" (from Google Benchmark), "speed", "methods", "throughput",
/// "scale", "far" (from ballast bench). Throws Error or Json's exceptions on another kind of file.
std::vector<Target> targets_of(const std::map<std::string, Json>& files);

/// The table, followed by the results that miss their target.
std::string to_text(const std::vector<Target>& targets);
Json to_json(const std::vector<Target>& targets);

}  // namespace ballast
