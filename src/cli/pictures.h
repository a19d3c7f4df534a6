// The pictures that commands read.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/engine/session.h"
#include "ballast/engine/vision.h"
#include "cli/run_report.h"

namespace ballast::cli {

void add_mmproj_option(CLI::App& app, std::string& path);

/// What a model sees of pictures. Its vision tower is opened when the first is read.
class Pictures {
 public:
  Pictures(const TextModel& model, std::string mmproj, bool quiet)
      : model_(model), mmproj_(std::move(mmproj)), quiet_(quiet) {}

  /// Reads a picture, or every page of a PDF as one. What it returns stands for them in the text
  /// that follows.
  std::string read(const std::string& path);
  /// Puts the pictures read since the last call in their places in the text. They stay in memory
  /// until forget().
  std::vector<Token> place(const std::vector<Token>& text);
  /// Lets go of all of them.
  void forget();
  /// Of all read so far.
  const Work& work() const { return work_; }

 private:
  std::string add(const std::string& file, const std::string& name);

  const TextModel& model_;
  std::string mmproj_;
  bool quiet_;
  Work work_;
  std::unique_ptr<const VisionModel> vision_;
  std::vector<PictureTokens> pictures_;
  std::size_t placed_ = 0;
};

}  // namespace ballast::cli
