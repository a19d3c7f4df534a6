#include "cli/program_memory.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cctype>
#include <fstream>
#include <vector>

namespace ballast::cli {
namespace {

/// Allowance for code, library tables and small buffers first touched while a model runs.
constexpr std::size_t kTouchedLater = 1 << 20;

}  // namespace

std::size_t program_memory(const Model& model) {
#if defined(__GLIBC__)
  ::malloc_trim(0);  // returns the memory of reading the text
#endif
  std::vector<std::string> files;
  for (const std::filesystem::path& file : model.file().files()) {
    std::error_code unknown;
    files.push_back(std::filesystem::canonical(file, unknown).string());
  }
  std::ifstream in("/proc/self/smaps");
  bool ours = true;
  std::size_t bytes = kTouchedLater;
  for (std::string line; std::getline(in, line);) {
    // A mapping begins with a line that ends with its file; lines on it begin with a capital.
    if (!line.empty() && std::isupper(static_cast<unsigned char>(line[0])) == 0) {
      ours = std::ranges::none_of(files, [&](const auto& f) { return line.ends_with(" " + f); });
    } else if (ours && line.starts_with("Rss:")) {
      bytes += std::stoull(line.substr(4)) * 1024;
    }
  }
  return bytes;
}

}  // namespace ballast::cli
