#include "cli/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "documents/document.h"
#include "documents/folder.h"
#include "formats/utf8_text.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

std::vector<DocumentPart> read_one(const std::string& path, const std::string& name, bool quiet) {
  const std::string self = "standard input";
  std::vector<DocumentPart> parts = path == "-" ? read_document(read_standard_input(), self, self)
                                                : read_document(read_file(path), name, path);
  for (const DocumentPart& part : parts) {
    if (!part.note.empty() && !quiet) tell("note: " + part.note);
  }
  return parts;
}

/// The texts in a folder, those of each file together.
std::vector<std::vector<DocumentPart>> read_folder(const fs::path& folder, bool quiet) {
  std::vector<std::vector<DocumentPart>> all;
  std::vector<std::string> left_out;
  const std::vector<fs::path> files = files_of(folder);
  for (const fs::path& file : files) {
    const std::string name = file.lexically_relative(folder).string();
    try {
      if (!may_be_text(file)) {
        left_out.push_back(name);
        continue;
      }
      std::vector<DocumentPart> parts = read_one(file.string(), name, quiet);
      if (!std::ranges::all_of(parts, is_blank, &DocumentPart::text))
        all.push_back(std::move(parts));
    } catch (const Error&) {  // a text of an unknown encoding, a PDF without text
      left_out.push_back(name);
    }
  }
  require(!all.empty(), "{}: no text in this folder", folder.string());
  if (!left_out.empty() && !quiet) {
    tell(fmt::format("note: {}: {} of {} files left out, which are no texts: {}{}", folder.string(),
                     left_out.size(), files.size(), left_out.front(),
                     left_out.size() > 1 ? ", …" : ""));
  }
  return all;
}

/// Those of a file or a folder, those of each file together.
std::vector<std::vector<DocumentPart>> read_path(const std::string& path, bool quiet) {
  std::error_code unknown;
  if (path != "-" && fs::is_directory(path, unknown)) return read_folder(path, quiet);
  std::vector<DocumentPart> parts = read_one(path, fs::path(path).filename().string(), quiet);
  require(!std::ranges::all_of(parts, &std::string::empty, &DocumentPart::text),
          "{}: the context is empty", path);
  return {std::move(parts)};
}

}  // namespace

Documents read_documents(std::span<const std::string> paths, bool quiet) {
  std::vector<DocumentPart> parts;
  std::size_t files = 0;
  for (const std::string& path : paths) {
    for (std::vector<DocumentPart>& file : read_path(path, quiet)) {
      ++files;
      std::ranges::move(file, std::back_inserter(parts));
    }
  }
  const bool pages = files == 1 && has_pages(parts);
  Documents out;
  out.what = pages ? fmt::format("{} page{} of {}", parts.size(), parts.size() == 1 ? "" : "s",
                                 parts.front().name)
             : files == 1 ? parts.front().name
                          : fmt::format("{} files", format_count(files));
  out.text = joined_text(parts, files > 1 || pages);
  return out;
}

std::vector<Documents> read_each(const std::string& path, bool quiet) {
  std::vector<Documents> out;
  for (const std::vector<DocumentPart>& file : read_path(path, quiet)) {
    out.push_back({joined_text(file, has_pages(file)), file.front().name});
  }
  return out;
}

std::string piped_text(bool quiet) {
  const Input kind = standard_input();
  if (kind == Input::other) return "";
  constexpr int kPatience = 2000;  // milliseconds
  if (kind == Input::pipe && !quiet && !input_comes(kPatience)) {
    tell("note: waiting for a context on standard input; </dev/null says that there is none");
  }
  const std::vector<DocumentPart> parts = read_one("-", "", quiet);
  std::string text = joined_text(parts, has_pages(parts));
  return is_blank(text) ? "" : text;
}

}  // namespace ballast::cli
