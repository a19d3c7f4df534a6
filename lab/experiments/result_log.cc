#include "experiments/result_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/fail.h"
#include "base/partial_files.h"
#include "base/read_file.h"
#include "formats/json_text.h"

namespace ballast {

namespace fs = std::filesystem;

struct ResultLog::State {
  fs::path path;
  std::FILE* file = nullptr;
  std::map<std::string, Json> findings;
  std::mutex mutex;
  bool any_written = false;  ///< findings of this run
  int partial = -1;          ///< a file without findings goes when the process is interrupted

  ~State() {
    if (partial >= 0) remove();  // the command failed before it found anything
    if (file != nullptr) std::fclose(file);
  }
  void has_findings() {
    any_written = true;
    forget_partial_file(std::exchange(partial, -1));
    set_resumable_file(path.string());
  }
  void write(const Json& line) {
    const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0) {
      const int reason = errno;
      if (findings.empty() && !any_written) remove();
      errno = reason;
      fail(ErrorCode::io, "{}: cannot write: {}", path.string(), std::strerror(errno));
    }
  }
  /// A file without findings is worth nothing.
  void remove() {
    forget_partial_file(std::exchange(partial, -1));
    set_resumable_file("");
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  std::size_t read(const std::string& content, const Json& identity);
};

namespace {

constexpr const char* kMark = "ballast_progress";

/// The file for appending, which no other process writes as long as this one has it open.
std::FILE* open_alone(const fs::path& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int file =
        ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) fail(ErrorCode::io, "{}: cannot write: {}", path.string(), std::strerror(errno));
    std::FILE* const out = ::fdopen(file, "ab");
    if (out == nullptr) {
      ::close(file);
      throw std::bad_alloc();
    }
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> owner(out, std::fclose);
    struct stat here = {}, there = {};
    require(::fstat(file, &here) == 0 && S_ISREG(here.st_mode),
            "{}: cannot write: it is not a regular file", path.string());
    require(::flock(file, LOCK_EX | LOCK_NB) == 0,
            "{}: another command is writing it; wait until it has ended, or name another file with "
            "--json=FILE",
            path.string());
    // A command that has just ended has removed the file that was opened.
    if (::stat(path.c_str(), &there) == 0 && here.st_ino == there.st_ino &&
        here.st_dev == there.st_dev) {
      return owner.release();
    }
  }
  fail("{}: cannot write: others keep removing it", path.string());
}

/// The first setting in which two identities differ, for messages.
std::string difference(const Json& was, const Json& is) {
  for (const auto& [key, value] : is.items()) {
    if (!was.contains(key)) return key;
    if (was[key] != value) {
      const auto text = [](const Json& json) { return json.dump().substr(0, 60); };
      return fmt::format("{} is {} there, {} here", key, text(was[key]), text(value));
    }
  }
  return "it has other settings";
}

}  // namespace

/// Returns the bytes that hold whole lines.
std::size_t ResultLog::State::read(const std::string& content, const Json& identity) {
  std::size_t begin = 0, number = 0;
  Json was;
  while (true) {
    const std::size_t end = content.find('\n', begin);
    // A log without findings is removed.
    if (end == std::string::npos) return findings.empty() ? 0 : begin;
    ++number;
    const std::string_view text(content.data() + begin, end - begin);
    check_json(text, path.string(), {.fields = kMostFields});
    const Json line = parse_own_json(text);
    if (number == 1) {
      require(line.is_object() && line.contains(kMark),
              "{}: not the progress of an experiment; move it away or name another file with "
              "--json=FILE",
              path.string());
      was = line[kMark];
    } else {
      require(was == identity,
              "{}: the progress of another command ({}); finish that one, or delete the file",
              path.string(), difference(was, identity));
      require(line.is_object() && line.contains("key") && line["key"].is_string() &&
                  line.contains("finding"),
              ErrorCode::bad_file,
              "{}, line {}: damaged; delete the line to have it computed again", path.string(),
              number);
      findings[line["key"].get<std::string>()] = line["finding"];
    }
    begin = end + 1;
  }
}

ResultLog::ResultLog(const fs::path& path, const Json& identity) : state_(new State) {
  state_->path = path;
  state_->file = open_alone(path);
  const std::size_t whole = state_->read(read_file(path), identity);
  if (::ftruncate(::fileno(state_->file), static_cast<off_t>(whole)) != 0) {
    fail(ErrorCode::io, "{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  if (!state_->findings.empty()) {
    state_->has_findings();
    return;
  }
  state_->partial = note_partial_file(path.string());
  if (whole == 0) state_->write({{kMark, identity}});
}

ResultLog::ResultLog() = default;
ResultLog::~ResultLog() = default;
ResultLog::ResultLog(ResultLog&&) noexcept = default;
ResultLog& ResultLog::operator=(ResultLog&&) noexcept = default;

std::size_t ResultLog::found() const { return state_ ? state_->findings.size() : 0; }

const Json* ResultLog::find(const std::string& key) const {
  if (!state_) return nullptr;
  const auto at = state_->findings.find(key);
  return at == state_->findings.end() ? nullptr : &at->second;
}

void ResultLog::add(const std::string& key, const Json& finding) {
  if (!state_) return;
  std::lock_guard lock(state_->mutex);
  state_->write({{"key", key}, {"finding", finding}});
  state_->has_findings();
}

void ResultLog::finish() {
  if (!state_) return;
  state_->remove();
}

}  // namespace ballast
