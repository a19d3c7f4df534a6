// The models of tests/vision/towers.py and what transformers computes with them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/engine/picture.h"
#include "ballast/engine/tokenizer.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast::test {

/// Skips the test where the script cannot run: it needs Python 3 with NumPy.
#define BALLAST_NEED_TOWERS(towers) \
  if (!(towers).made) GTEST_SKIP() << "tests/vision/towers.py needs python3 with numpy"

/// As picture() of the script.
inline Picture picture_of(std::size_t width, std::size_t height) {
  Picture out(width, height);
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        out.at(x, y)[c] =
            static_cast<std::uint8_t>(x * x * (c + 3) / 16 + y * 13 * (c + 1) + x * y / 8);
      }
    }
  }
  return out;
}

inline const nlohmann::json& towers_json() {
  static const nlohmann::json all =
      nlohmann::json::parse(read_text(BALLAST_SOURCE_DIR "/tests/vision/towers.json"));
  return all;
}

/// Numbers in units of 1e-6.
inline std::vector<float> numbers_of(const nlohmann::json& list) {
  std::vector<float> out;
  for (const auto& x : list) out.push_back(static_cast<float>(x.get<double>() * 1e-6));
  return out;
}

struct Towers {
  Towers() {
    for (const char* python : {"/usr/bin/python3", "python3"}) {
      const std::string command = std::string(python) +
                                  " " BALLAST_SOURCE_DIR "/tests/vision/towers.py '" +
                                  dir.path().string() + "'";
      const int status = std::system(command.c_str());
      if (made = status == 0; made) return;
      const int code = WEXITSTATUS(status);
      if (code != 77 && code != 127) throw std::runtime_error(command + " failed");
    }
  }

  TempDir dir;
  bool made = false;
};

/// The picture of the script's measurement, and the text around it.
inline const Picture kPicture = picture_of(120, 57);
inline const std::vector<Token> kText = {104, 105, 259, 33, 258, 10, 119,
                                         104, 97,  116, 63, 260, 40};

}  // namespace ballast::test
