// Experiments on one captured file, or on a folder of them with means over the files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/attention/kv_parameters.h"
#include "experiments/experiment.h"

namespace ballast {

struct FileExperiment {
  std::vector<std::string> keys;  ///< columns that get an interval over the files
  /// Everything that determines the findings on a source.
  std::function<Json(const KvSource&)> identity;
  /// The result of one source, whose parameters stand in `source` of over_files(). The log is null
  /// where the file is one of several.
  std::function<Result(const KvSource&, ResultLog*, const Advance&)> measure;
};

/// Measures one file or stream, or a folder's files one after another. `source` is that of the
/// experiment's parameters, and is each file's while it is measured.
Result over_files(KvParameters& source, Work& work, const FileExperiment& experiment);

}  // namespace ballast
