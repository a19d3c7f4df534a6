// What a long experiment has already found, on disk, so that an interrupted one goes on from there.
#pragma once

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "report/json.h"

namespace ballast {

/// A file of JSON lines: what the experiment is, then a finding a line, each written as it is made.
/// A line cut off by the end of the program is dropped.
class ResultLog {
 public:
  /// Keeps nothing.
  ResultLog();
  /// `identity`: all that decides the findings. Throws Error if the file is of something else, or
  /// is no such file, naming the remedy.
  ResultLog(const std::filesystem::path& path, const Json& identity);
  ~ResultLog();
  ResultLog(ResultLog&&) noexcept;
  ResultLog& operator=(ResultLog&&) noexcept;

  /// Findings that were there when it was opened.
  std::size_t found() const;
  /// null where there is none.
  const Json* find(const std::string& key) const;
  /// Throws Error if it cannot be written. Safe to call from any thread.
  void add(const std::string& key, const Json& finding);
  /// The finding that was there, else what `make` returns, which is added.
  template <typename Make>
  Json find_or_make(const std::string& key, const Make& make) {
    if (const Json* found = find(key)) return *found;
    Json made = make();
    add(key, made);
    return made;
  }
  /// Removes the file, once the findings are elsewhere.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ballast
