// Files that an OutputFile has not finished.
#pragma once

#include <filesystem>

namespace ballast {

inline int partial_files_in(const std::filesystem::path& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().extension() == ".partial" ? 1 : 0;
  }
  return count;
}

}  // namespace ballast
