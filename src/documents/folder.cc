#include "documents/folder.h"

#include <algorithm>
#include <fstream>

#include "documents/converters.h"
#include "formats/utf8_text.h"

namespace ballast {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(folder, options, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with('.')) {
      if (it->is_directory(error)) it.disable_recursion_pending();
    } else if (it->is_regular_file(error)) {
      files.push_back(it->path());
    }
    error.clear();
  }
  std::ranges::sort(files);
  return files;
}

bool may_be_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(4096, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));
  const bool wide = head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF");  // UTF-16
  const std::string name = path.filename().string();
  return !pdf_in(head, name).empty() || wide || is_office_name(name) || can_convert(name) ||
         (head.find('\0') == std::string::npos && !looks_binary(head));
}

bool has_pages(const std::vector<DocumentPart>& parts) { return parts.front().page > 0; }

}  // namespace ballast
