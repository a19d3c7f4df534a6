// The tables and figures of the papers, each as a call of an experiment and what the paper says of
// its numbers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/papers/paper_claims.h"

namespace ballast {

struct PaperRow {
  std::string name;   ///< of the result's file
  std::string label;  ///< "Figure 4"
  std::string experiment;
  /// Its parameters, see Parameters::set(). A text {model} is the model's file, {kv} the captured
  /// file or a made-up stream, {prompts} a folder of them, {index} the stream of theorem 3.2,
  /// {text} the text, {texts} it and texts of other kinds, {files} the files that are there,
  /// {lengths} four lengths up to the model's positions, {length} one, {prompt} one that leaves
  /// room, {memory} what throughput may take, {longest} --longest.
  Json values;
  std::vector<std::string> files;  ///< under --data; one of them is enough
  std::vector<PaperClaim> claims;
  std::string left_out = {};  ///< why there is no command
};

struct Paper {
  std::string name;   ///< "balancekv"
  std::string title;  ///< authors, year, title
  std::vector<PaperRow> rows;
};

std::span<const Paper> papers();

}  // namespace ballast
