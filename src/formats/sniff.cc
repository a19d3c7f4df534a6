#include "formats/sniff.h"

#include <algorithm>
#include <utility>

namespace ballast {

std::string_view sniff(std::span<const std::byte> file) {
  std::string_view begin(reinterpret_cast<const char*>(file.data()),
                         std::min<std::size_t>(file.size(), 64));
  if (begin.empty()) return "an empty file";
  if (begin.starts_with("GGUF")) return "a GGUF file";
  if (begin.starts_with("BALLASTC")) return "a saved Ballast cache";
  if (begin.starts_with("BALLASTP")) return "a packed Ballast cache";
  if (begin.starts_with("BALLASTB")) return "a basis for packing caches";
  if (begin.starts_with("%PDF-")) return "a PDF file";
  if (begin.starts_with("version https://git-lfs")) {
    return "a Git LFS pointer to the real file, which `git lfs pull` fetches";
  }
  if (begin.starts_with("PK\x03\x04")) return "a ZIP archive, perhaps PyTorch's";
  if (begin.starts_with("\x89HDF")) return "an HDF5 file";
  if (begin.starts_with("\x93NUMPY")) return "a NumPy array file";
  if (begin.starts_with("\x1f\x8b")) return "a gzip archive";
  for (std::string_view magic : {"lmgg", "tjgg", "fmgg", "algg"}) {
    if (begin.starts_with(magic)) return "a GGML file of a form older than GGUF";
  }
  if (begin.size() > 9 && begin.substr(8, 2) == "{\"") return "a safetensors file";
  bool text = begin.size() >= 16 && std::all_of(begin.begin(), begin.end(), [](unsigned char c) {
                return c >= 0x20 || c == '\n' || c == '\r' || c == '\t';
              });
  if (text) return begin.starts_with("<") ? "a web page or XML text" : "a text file";
  return "";
}

}  // namespace ballast
