// The model of speed measurements: a file or random weights.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "experiments/parameters.h"

namespace ballast {

/// model, or shape with write-model.
struct BenchModelParameters {
  std::string path;
  std::string shape;
  std::string keep;

  void describe(Parameters& parameters);
  const std::string& name() const { return shape.empty() ? path : shape; }
};

/// A given file, or a temporary one with random weights; --write-model keeps it.
class BenchModel {
 public:
  /// Throws Error on parameters that contradict one another.
  explicit BenchModel(const BenchModelParameters& flags);
  ~BenchModel();
  BenchModel(const BenchModel&) = delete;
  BenchModel& operator=(const BenchModel&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool temporary_ = false;
  int note_ = -1;
};

/// "16k", "1M", "512MiB" as a number; k, M and G are powers of 1024. Throws Error that names
/// `what`.
std::size_t parse_amount(std::string_view text, std::string_view what);

}  // namespace ballast
