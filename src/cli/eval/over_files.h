// Experiments on one captured file, or on a folder of them with means over the files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/eval/experiment.h"
#include "cli/kv_options.h"

namespace ballast::cli {

struct FileExperiment {
  std::string command;            ///< "eval attention"; begins messages
  std::vector<std::string> keys;  ///< columns that get an interval over the files
  /// Everything that determines the findings on a source.
  std::function<Json(const KvSource&)> identity;
  /// The result of one source, whose options stand in `source` of over_files(). The log is null
  /// where the file is one of several.
  std::function<Result(const KvSource&, ResultLog*, const Advance&)> measure;
};

/// Measures and writes: one file or stream as it is, a folder's files one after another. `source`
/// is that of the experiment's options, and is each file's while it is measured.
void over_files(KvOptions& source, ResultOutput& output, const FileExperiment& experiment);

}  // namespace ballast::cli
