// What is aimed at, beside what a run of ./bench.sh measured.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/json.h"

namespace ballast {

/// One measurement, and which of several it is: "int4, d = 64".
struct Measured {
  std::string name;
  double value;
};

/// What one line of the table is about. Ratios and shares, all of one kind.
struct Target {
  enum class Kind { share, times, seconds };
  std::string part;  ///< of the table: lines of one part stand together
  std::string what;
  Kind kind = Kind::share;
  bool at_least = true;         ///< or at most
  std::optional<double> bound;  ///< none: measured only
  std::vector<Measured> measured;

  bool reaches(double value) const;
  bool reached() const;
};

/// Of the files that a run has written, by the names that bench.sh gives them without "bench-" and
/// ".json": "attention", "matmul", "balance" (Google Benchmark's), "speed", "methods",
/// "throughput", "scale", "far" (ballast bench's). What is not there, or was measured in no way
/// that counts, has no line. Throws Error, or Json's own, if a file is none of these.
std::vector<Target> targets_of(const std::map<std::string, Json>& files);

/// A table, and below it what each line that was not reached misses.
std::string to_text(const std::vector<Target>& targets);
Json to_json(const std::vector<Target>& targets);

}  // namespace ballast
