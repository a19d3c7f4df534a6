#include "cli/documents.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/fail.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "formats/sniff.h"
#include "formats/utf8_text.h"
#include "report/units.h"
#include "text/html.h"

extern char** environ;

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

/// A text, or a page of one.
struct Part {
  std::string name;
  std::string text;
};

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f") == std::string_view::npos;
}

/// Whether the first bytes hold what no text has: zeros, and many other control characters.
bool looks_binary(std::string_view text) {
  const std::string_view head = text.substr(0, 4096);
  const auto strange = std::ranges::count_if(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 32 && std::strchr("\t\n\r\f\v\b\x1b", c) == nullptr;
  });
  return static_cast<std::size_t>(strange) > head.size() / 20;
}

// --- PDF ---

/// What `program` prints. Throws Error that begins with `path`.
std::string output_of(std::vector<std::string> words, const std::string& path) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, ErrorCode::io, "{}: no pipe: {}", path,
          std::strerror(errno));
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  std::string out;
  char buffer[1 << 16];
  ssize_t n = 0;
  while (error == 0 && out.size() <= Readable{}.most &&
         ((n = ::read(ends[0], buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR))) {
    if (n > 0) out.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  if (error == 0) ::waitpid(child, &status, 0);
  require(error == 0, ErrorCode::unsupported,
          "{}: reading a PDF takes the program {} (Debian: apt-get install poppler-utils)", path,
          words[0]);
  require(status == 0, ErrorCode::bad_file,
          "{}: {} cannot read it: it is damaged, or wants a password", path, words[0]);
  return out;
}

/// The pages that have text. `name`: of the file, for people.
std::vector<Part> pages_of(const std::string& path, const std::string& name) {
  const std::string file = path.starts_with('-') ? "./" + path : path;
  const std::string text =
      output_of({"pdftotext", "-q", "-enc", "UTF-8", "-eol", "unix", file, "-"}, path);
  std::vector<Part> pages;
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {  // a form feed ends each page
    const std::size_t end = std::min(text.find('\f', begin), text.size());
    std::string page = text.substr(begin, end - begin);
    if (!is_blank(page)) pages.push_back({fmt::format("{}, page {}", name, number), page});
    begin = end + 1;
  }
  require(!pages.empty(), ErrorCode::unsupported,
          "{}: no text in this PDF, perhaps pictures of it; make it a text first (ocrmypdf)", path);
  return pages;
}

// --- files and folders ---

std::vector<Part> read_one(const std::string& path, const std::string& name) {
  if (path == "-") return {{"standard input", read_input("-")}};
  std::string text = read_file(path);
  if (text.starts_with("%PDF-")) return pages_of(path, name);
  text = as_utf8(std::move(text), path);
  if (looks_binary(text)) {
    const std::string_view kind = sniff(std::as_bytes(std::span(text)));
    fail(ErrorCode::unsupported, "{}: {}, but a text is expected", path,
         kind.empty() ? "binary data" : kind);
  }
  std::string ending = fs::path(path).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ending == ".html" || ending == ".htm" || ending == ".xhtml" || is_html(text)) {
    text = html_to_text(text);
  }
  return {{name, std::move(text)}};
}

/// Whether a file of a folder may be read as a text: its first bytes say so.
bool may_be_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(4096, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));
  return head.starts_with("%PDF-") || (head.find('\0') == std::string::npos && !looks_binary(head));
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

std::vector<Part> read_folder(const fs::path& folder, std::size_t& count, bool quiet) {
  std::vector<Part> parts;
  std::vector<std::string> left_out;
  const std::vector<fs::path> files = files_of(folder);
  for (const fs::path& file : files) {
    const std::string name = file.lexically_relative(folder).string();
    try {
      if (!may_be_text(file)) {
        left_out.push_back(name);
        continue;
      }
      std::vector<Part> more = read_one(file.string(), name);
      if (std::ranges::all_of(more, [](const Part& part) { return is_blank(part.text); })) continue;
      ++count;
      std::ranges::move(more, std::back_inserter(parts));
    } catch (const Error&) {  // a text of another encoding, a PDF without text
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
  std::vector<Part> parts;
  std::size_t files = 0;
  bool pdf = false;
  for (const std::string& path : paths) {
    std::error_code unknown;
    std::vector<Part> more;
    if (path != "-" && fs::is_directory(path, unknown)) {
      more = read_folder(path, files, quiet);
    } else {
      const std::string name = fs::path(path).filename().string();
      more = read_one(path, name);
      require(!std::ranges::all_of(more, [](const Part& p) { return p.text.empty(); }),
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
  if (parts.size() == 1 && !pdf) {
    out.text = std::move(parts.front().text);
    return out;
  }
  for (const Part& part : parts) {
    while (!out.text.empty() && !out.text.ends_with("\n\n")) out.text += '\n';
    out.text += fmt::format("=== {} ===\n\n{}", part.name, part.text);
  }
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
