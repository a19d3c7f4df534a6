#include "documents/converters.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "base/output_file.h"
#include "base/read_file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

struct Reader {
  std::string_view ending, program, package, format;
};
constexpr std::array<Reader, 8> kReaders = {{{".epub", "pandoc", "pandoc", "epub"},
                                             {".rtf", "pandoc", "pandoc", "rtf"},
                                             {".fb2", "pandoc", "pandoc", "fb2"},
                                             {".doc", "soffice", "libreoffice-writer", ""},
                                             {".ppt", "soffice", "libreoffice-impress", ""},
                                             {".pptx", "soffice", "libreoffice-impress", ""},
                                             {".xls", "soffice", "libreoffice-calc", ""},
                                             {".xlsx", "soffice", "libreoffice-calc", ""}}};

/// LibreOffice takes seconds to start, and reserves gigabytes of addresses, as pandoc does.
constexpr ChildLimits kLimits{.output = std::size_t{64} << 20,
                              .memory = std::size_t{16} << 30,
                              .processor = std::chrono::seconds(60)};

const Reader* reader_of(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* found = std::ranges::find(kReaders, ending, &Reader::ending);
  return found == kReaders.end() ? nullptr : found;
}

bool is_in_path(std::string_view program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (folder.empty()) continue;
    if (may_run(fs::path(folder) / program)) return true;
  }
  return false;
}

/// LibreOffice reads and writes files only. With a profile of its own it does not wait for a window
/// that is open.
std::optional<std::string> of_libreoffice(std::string_view bytes, const Reader& reader,
                                          const std::string& path) {
  const TemporaryFolder folder("ballast-");
  const fs::path in = folder.path() / ("document" + std::string(reader.ending));
  write_file(in, bytes);
  const bool table = reader.ending.starts_with(".xls");
  const std::string to = table                               ? "csv"
                         : reader.ending.starts_with(".ppt") ? "pdf"
                                                             : "txt:Text (encoded):UTF8";
  output_of({std::string(reader.program),
             "-env:UserInstallation=file://" + (folder.path() / "profile").string(), "--headless",
             "--convert-to", to, "--outdir", folder.path().string(), in.string()},
            std::string(reader.package), "", path, kLimits);
  for (const char* made : {"document.txt", "document.csv", "document.pdf"}) {
    if (!fs::exists(folder.path() / made)) continue;
    std::string text = read_file(folder.path() / made);
    if (!text.starts_with("%PDF-")) return text;
    return output_of({"pdftotext", "-q", "-enc", "UTF-8", "-eol", "unix", "-", "-"},
                     "poppler-utils", text, path);
  }
  return std::nullopt;
}

}  // namespace

bool can_convert(const std::string& name) {
  const Reader* reader = reader_of(name);
  return reader != nullptr && is_in_path(reader->program);
}

std::string converted_text(std::string_view bytes, const std::string& name,
                           const std::string& path) {
  const Reader* reader = reader_of(name);
  require(reader != nullptr, ErrorCode::unsupported, "{}: no program is known that reads it", path);
  const std::optional<std::string> text =
      reader->format.empty()
          ? of_libreoffice(bytes, *reader, path)
          : output_of({std::string(reader->program), "-f", std::string(reader->format), "-t",
                       "plain", "--wrap=none"},
                      std::string(reader->package), bytes, path, kLimits);
  require(text.has_value(), ErrorCode::bad_file,
          "{}: {} cannot read it: it is damaged, or wants a password", path, reader->program);
  return *text;
}

}  // namespace ballast
