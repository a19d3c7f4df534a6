// The options of ballast run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/documents.h"
#include "cli/model_options.h"

namespace ballast::cli {

/// What ballast run is told.
struct RunOptions {
  std::string model;
  std::string prompt;
  std::string prompt_file;
  std::vector<std::string> context;
  std::vector<std::string> images;
  std::string mmproj;
  std::vector<std::string> questions;
  std::string questions_file;
  std::string system;
  bool chat = false;
  bool raw = false;
  CacheFlags cache;
  GenerateFlags generate;
  int logprobs = -1;
  std::string save_cache;
  std::string pack = "off";
  std::vector<std::string> load_cache;
  std::size_t reread = 0;  ///< percent
  std::string library;
  std::string split = "layers";
  bool cite = false;
  bool stats = false;
  bool quiet = false;
  JsonOption json;

  void add_to(CLI::App& app);
  /// Throws Error where options exclude each other.
  void check() const;
  bool has_context() const { return !context.empty() || !images.empty() || !load_cache.empty(); }
  /// The questions in order: the prompt, --question, the lines of --questions.
  std::vector<std::string> all_questions() const;
  /// The texts to be asked about: of --context, or what is piped in beside a question.
  Documents texts() const;

 private:
  void add_cache_to(CLI::App& app);
};

}  // namespace ballast::cli
