// The results of a long experiment on disk, so that an interrupted run can continue.
#pragma once

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "report/json.h"

namespace ballast {

/// A file of JSON lines: the identity of the experiment, then one finding a line, written at once.
/// An incomplete last line is dropped.
class ResultLog {
 public:
  /// A log that keeps nothing.
  ResultLog();
  /// `identity`: everything that determines the findings. Throws Error with a remedy if the file
  /// belongs to another experiment, is no log, or is another process's, which goes on undisturbed.
  ResultLog(const std::filesystem::path& path, const Json& identity);
  ~ResultLog();
  ResultLog(ResultLog&&) noexcept;
  ResultLog& operator=(ResultLog&&) noexcept;

  /// The number of findings in the file when it was opened.
  std::size_t found() const;
  /// null where there is none.
  const Json* find(const std::string& key) const;
  /// Throws Error if it cannot be written. Safe to call from any thread.
  void add(const std::string& key, const Json& finding);
  /// Returns the recorded finding, or records and returns the result of `make`.
  template <typename Make>
  Json find_or_make(const std::string& key, const Make& make) {
    if (const Json* found = find(key)) return *found;
    Json made = make();
    add(key, made);
    return made;
  }
  /// Removes the file. Call it once the result is written.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ballast
