// Benchmark files: one JSON object a line.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"

namespace ballast {

/// An object and its place. The getters throw Error that names file, line and field if the field is
/// missing or of another type.
struct Record {
  std::string place;  ///< "file.jsonl:12"
  SortedJson fields;

  bool has(const char* name) const;  ///< and is not null
  const std::string& text(const char* name) const;
  /// An integer, also in the form of a string.
  std::int64_t number(const char* name) const;
  /// The same as digits, of any sign and size.
  std::string digits(const char* name) const;
  /// A list of texts, not empty.
  std::vector<std::string> texts(const char* name) const;
  /// An object.
  Record object(const char* name) const;
};

/// Reads one line at a time; lines of blanks are skipped.
class JsonLines {
 public:
  /// Throws Error if the file cannot be read.
  explicit JsonLines(const std::filesystem::path& path);

  /// The next object, or nothing at the end. Throws Error naming the line if it is not a JSON
  /// object, is nested deeper than 64 or longer than 256 MiB, and at the end of a file without
  /// objects.
  std::optional<Record> next();

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::size_t line_ = 0;
  std::size_t found_ = 0;
};

/// Turns every record of a file into a sample.
template <typename Make>
auto read_all(const std::filesystem::path& path, Make&& make) {
  std::vector<decltype(make(std::declval<const Record&>()))> out;
  JsonLines lines(path);
  while (const std::optional<Record> record = lines.next()) out.push_back(make(*record));
  return out;
}

/// The .jsonl files of `path`: the file itself, or those in the folder, sorted by name. Throws
/// Error if there is none.
std::vector<std::filesystem::path> json_lines_files(const std::filesystem::path& path);

}  // namespace ballast
