// Tiny models with known logits, made by tests/model/reference.py.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast::test {

/// Skips the test where the script cannot run: it needs Python 3 with NumPy.
#define BALLAST_NEED_REFERENCE(reference) \
  if (!(reference).made()) GTEST_SKIP() << "tests/model/reference.py needs python3 with numpy"

/// One case of the script, in a folder of its own.
class ReferenceCase {
 public:
  explicit ReferenceCase(const std::string& name) : folder_(dir_ / name) {
    // The system's own Python is where packages of the system are seen.
    for (const char* python : {"/usr/bin/python3", "python3"}) {
      const std::string command = std::string(python) +
                                  " " BALLAST_SOURCE_DIR "/tests/model/reference.py '" +
                                  dir_.path().string() + "' " + name;
      const int status = std::system(command.c_str());
      if (made_ = status == 0; made_) break;
      const int code = WEXITSTATUS(status);
      if (code != 77 && code != 127) throw std::runtime_error(command + " failed");
    }
    if (!made_) return;
    tokens = read<std::int32_t>("tokens.i32");
    logits = read<float>("logits.f32");
    vocabulary = logits.size() / tokens.size();
  }

  bool made() const { return made_; }
  std::filesystem::path hf() const { return folder_ / "hf"; }
  std::filesystem::path gguf() const { return folder_ / "model.gguf"; }
  bool has_gguf() const { return std::filesystem::exists(gguf()); }
  const TempDir& dir() const { return dir_; }

  std::vector<Token> tokens;
  std::vector<float> logits;  ///< of every position, row by row
  std::size_t vocabulary = 0;

 private:
  template <typename T>
  std::vector<T> read(const char* name) const {
    const std::string bytes = read_text(folder_ / name);
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
    return out;
  }

  TempDir dir_;
  std::filesystem::path folder_;
  bool made_ = false;
};

/// The logits of every position, row by row.
inline std::vector<float> all_logits(Engine& engine, Sequence& sequence,
                                     std::span<const Token> tokens, std::size_t chunk = 256) {
  std::vector<float> out;
  PrefillOptions options;
  options.chunk = chunk;
  options.all_logits = [&](std::size_t first, ConstMatrix rows) {
    EXPECT_EQ(first * rows.cols, out.size());
    for (std::size_t i = 0; i < rows.rows; ++i)
      out.insert(out.end(), rows[i].begin(), rows[i].end());
  };
  engine.prefill(sequence, tokens, options);
  return out;
}

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    most = std::isnan(difference) ? 1e30 : std::max(most, difference);
  }
  return most;
}

}  // namespace ballast::test
