#include "cli/documents.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/fail.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "documents/document.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

std::vector<DocumentPart> read_one(const std::string& path, const std::string& name) {
  if (path == "-") return {{"standard input", read_input("-")}};
  return read_document(read_file(path), name, path);
}

/// Whether a file of a folder may be read as a text: its first bytes say so.
bool may_be_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(4096, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));
  const bool wide = head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF");  // UTF-16
  return is_pdf(head) || wide || (head.find('\0') == std::string::npos && !looks_binary(head));
}

/// Files that are not hidden, at any depth.
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

std::vector<DocumentPart> read_folder(const fs::path& folder, std::size_t& count, bool quiet) {
  std::vector<DocumentPart> parts;
  std::vector<std::string> left_out;
  const std::vector<fs::path> files = files_of(folder);
  for (const fs::path& file : files) {
    const std::string name = file.lexically_relative(folder).string();
    try {
      if (!may_be_text(file)) {
        left_out.push_back(name);
        continue;
      }
      std::vector<DocumentPart> more = read_one(file.string(), name);
      if (std::ranges::all_of(more, [](const DocumentPart& part) { return is_blank(part.text); }))
        continue;
      ++count;
      std::ranges::move(more, std::back_inserter(parts));
    } catch (const Error&) {  // a text of an unknown encoding, a PDF without text
      left_out.push_back(name);
    }
  }
  require(!parts.empty(), "{}: no text in this folder", folder.string());
  if (!left_out.empty() && !quiet) {
    tell(fmt::format("note: {}: {} of {} files left out, which are no texts: {}{}", folder.string(),
                     left_out.size(), files.size(), left_out.front(),
                     left_out.size() > 1 ? ", …" : ""));
  }
  return parts;
}

}  // namespace

Documents read_documents(std::span<const std::string> paths, bool quiet) {
  std::vector<DocumentPart> parts;
  std::size_t files = 0;
  bool pdf = false;
  for (const std::string& path : paths) {
    std::error_code unknown;
    std::vector<DocumentPart> more;
    if (path != "-" && fs::is_directory(path, unknown)) {
      more = read_folder(path, files, quiet);
    } else {
      const std::string name = fs::path(path).filename().string();
      more = read_one(path, name);
      require(!std::ranges::all_of(more, [](const DocumentPart& p) { return p.text.empty(); }),
              "{}: the context is empty", path);
      pdf = paths.size() == 1 && more.front().name != name && path != "-";
      ++files;
    }
    std::ranges::move(more, std::back_inserter(parts));
  }
  Documents out;
  const std::string first = fs::path(paths.front()).filename().string();
  out.what = pdf ? fmt::format("{} page{} of {}", parts.size(), parts.size() == 1 ? "" : "s", first)
             : files == 1 ? parts.front().name
                          : fmt::format("{} files", format_count(files));
  out.text = joined_text(parts, parts.size() > 1 || pdf);
  return out;
}

std::string piped_text(bool quiet) {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0) return "";
  const bool pipe = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  if (!pipe && !S_ISREG(status.st_mode)) return "";
  constexpr int kPatience = 2000;  // milliseconds
  pollfd in{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (pipe && !quiet && ::poll(&in, 1, kPatience) == 0) {
    tell("note: waiting for a context on standard input; </dev/null says that there is none");
  }
  std::string text = read_input("-");
  return is_blank(text) ? "" : text;
}

}  // namespace ballast::cli
