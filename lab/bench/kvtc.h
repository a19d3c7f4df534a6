// KVTC (arXiv 2511.01815), as far as its paper says, to compare bytes with: PCA over all layers and
// heads, keys before rotary positions and values apart; bits of groups of components by dynamic
// programming over the error of a sample, with a scale and a shift a group and token; DEFLATE.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "ballast/matrix.h"

namespace ballast::bench {

/// Of keys or of values.
class Kvtc {
 public:
  struct Group {
    std::size_t begin = 0, size = 0;
    int bits = 0;  ///< of a component; 0 with one component: it is stored as f16
  };
  struct Coded {
    Matrix rows;
    std::size_t bytes = 0;
  };

  /// `covariance`: about `mean`; `sample`: some rows of the calibration, on which bits are divided.
  Kvtc(std::vector<float> mean, ConstMatrix covariance, const Matrix& sample);
  Kvtc(const std::filesystem::path& path);
  void save(const std::filesystem::path& path) const;

  /// Rows of a text through it, `bits` for each before DEFLATE.
  Coded code(ConstMatrix rows, std::size_t bits) const;

 private:
  Matrix project(ConstMatrix rows) const;
  std::vector<Group> divide(std::size_t bits) const;

  std::vector<float> mean_;
  Matrix vectors_;  ///< leading components, a row each
  Matrix sample_;   ///< projected
};

}  // namespace ballast::bench
