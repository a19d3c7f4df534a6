#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/partial_files.h"
#include "base/sha256.h"
#include "hub/http.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 5;                       ///< that bring nothing, one after another
constexpr std::uintmax_t kRoomLeft = 16 << 20;  ///< on the disk, beside the file
constexpr std::string_view kMagic = "GGUF";     ///< what a model's file begins with
constexpr std::uintmax_t kMost = std::uintmax_t{64} << 30;  ///< of a file of no stated size
constexpr std::uintmax_t kLook = 64 << 20;                  ///< after which the room is looked at
constexpr std::size_t kBuffer = std::size_t{1} << 20;       ///< for sums

[[noreturn]] void fail_to(const char* action, const fs::path& path, int error) {
  fail(ErrorCode::io, "{}: {}: {}", path.string(), action, std::strerror(error));
}

/// The partial file, open and locked: whoever holds it is the one who fetches.
class Partial {
 public:
  /// Empty path() where another process has made `to` meanwhile.
  Partial(const fs::path& to, const std::string& tag,
          const std::function<void(const std::string&)>& say);
  ~Partial() {
    if (file_ >= 0) ::close(file_);
    release();
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  bool done() const { return file_ < 0; }
  const fs::path& path() const { return path_; }
  std::uintmax_t size() const { return size_; }

  void append(std::span<const std::byte> bytes);
  /// Throws Error if what there is of it does not begin as a model.
  void check_begin(const std::string& url) const;
  void clear();
  /// Becomes `to`.
  void commit(const fs::path& to);
  /// Deletes it: nothing of it is of use.
  void discard();

 private:
  bool is_current() const;
  /// An interrupt neither names nor removes it.
  void release();

  fs::path path_;
  int file_ = -1;
  int note_ = -1;  ///< for its removal: where no tag says its content, nothing goes on from it
  std::uintmax_t size_ = 0;
};

/// What parts of the same content share.
std::string mark_of(const std::string& tag) {
  std::string out;
  for (char c : tag) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain && out.size() < 16) out += c;
  }
  return out;
}

Partial::Partial(const fs::path& to, const std::string& tag,
                 const std::function<void(const std::string&)>& say)
    : path_(to.string() + "." + mark_of(tag) + (tag.empty() ? "part" : ".part")) {
  for (bool told = false;;) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) fail_to("cannot create", path_, errno);
    if (!lock_file(file_, Lock::alone_or_not)) {
      if (errno != EWOULDBLOCK) fail_to("cannot lock", path_, errno);
      if (!told)
        say(fmt::format("{}: another process fetches it; waiting", to.filename().string()));
      told = true;
      if (!lock_file(file_, Lock::alone)) fail_to("cannot lock", path_, errno);
    }
    // The one before may have renamed or removed it, and a file of that name be another's.
    std::error_code unknown;
    if (is_current()) {
      if (!fs::exists(to, unknown)) break;
      ::unlink(path_.c_str());
    }
    ::close(file_);
    file_ = -1;
    if (fs::exists(to, unknown)) return;
  }
  struct stat info {};
  ::fstat(file_, &info);
  size_ = static_cast<std::uintmax_t>(info.st_size);
  if (tag.empty()) {
    clear();
    note_ = note_partial_file(path_.string());
  } else {
    set_resumable_file(path_.string());
  }
}

void Partial::release() {
  set_resumable_file("");
  forget_partial_file(std::exchange(note_, -1));
}

bool Partial::is_current() const {
  struct stat ours {
  }, named{};
  return ::fstat(file_, &ours) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

void Partial::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_to("cannot write", path_, errno);
    size_ += static_cast<std::uintmax_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void Partial::check_begin(const std::string& url) const {
  std::string begin(std::min<std::uintmax_t>(kMagic.size(), size_), ' ');
  const ssize_t n = ::pread(file_, begin.data(), begin.size(), 0);
  if (n < 0) fail_to("cannot read", path_, errno);
  require(kMagic.starts_with(begin), ErrorCode::bad_file,
          "{}: what the server sends is no GGUF file; check the address", url);
}

void Partial::clear() {
  if (::ftruncate(file_, 0) != 0) fail_to("cannot write", path_, errno);
  size_ = 0;
}

void Partial::commit(const fs::path& to) {
  if (sync_file(file_) != 0) fail_to("cannot write", path_, errno);
  if (::rename(path_.c_str(), to.c_str()) != 0) fail_to("cannot create", to, errno);
  release();
}

void Partial::discard() {
  ::unlink(path_.c_str());
  release();
}

void require_room(const fs::path& to, std::uintmax_t needed) {
  std::error_code unknown;
  const fs::space_info space = fs::space(to.parent_path(), unknown);
  if (unknown) return;
  require(space.available >= needed && space.available - needed >= kRoomLeft, ErrorCode::io,
          "{}: {} are to be fetched, and {} are free; make room, or set BALLAST_MODELS to a folder "
          "on another disk",
          to.parent_path().string(), format_bytes(static_cast<double>(needed)),
          format_bytes(static_cast<double>(space.available)));
}

/// One request for what is missing. Returns false where the connection broke.
bool fetch_rest(const Download& what, Partial& part, std::string& why) {
  const std::uintmax_t begun = part.size();
  std::uintmax_t looked = begun;
  const double missing = static_cast<double>(what.bytes - std::min(what.bytes, begun));
  Progress progress(what.to.filename().string());
  try {
    const Answer answer = fetch(what.url, begun, [&](std::span<const std::byte> bytes, bool begin) {
      if (begin) part.clear();
      const bool begins = part.size() < kMagic.size();
      part.append(bytes);
      if (begins) part.check_begin(what.url);
      require(what.bytes == 0 || part.size() <= what.bytes, ErrorCode::io,
              "{}: the server sends more than the {} bytes that it said", what.url, what.bytes);
      if (what.bytes == 0 && part.size() - std::min(looked, part.size()) >= kLook) {
        looked = part.size();
        require(looked <= kMost, ErrorCode::io, "{}: the server sends over {} of no stated length",
                what.url, format_bytes(static_cast<double>(kMost)));
        require_room(what.to, 0);
      }
      if (!what.quiet && missing > 0) {
        progress.update((static_cast<double>(part.size()) - static_cast<double>(begun)) / missing);
      }
    });
    if (answer.status == 416) {  // there is no such rest
      part.clear();
      why = "the server has no such range";
      return false;
    }
    require(answer.status < 500, ErrorCode::io,
            "{}: the server answers with status {}; try again later", what.url, answer.status);
    require(answer.status < 300, ErrorCode::io, "{}: the server answers with status {}", what.url,
            answer.status);
    if (what.bytes == 0 || part.size() == what.bytes) return true;
    require(answer.header("content-length").empty(), ErrorCode::bad_file,
            "{}: the server's file has {} bytes, and {} were expected: it is another file",
            what.url, part.size(), what.bytes);
    why = "the server ended early";
  } catch (const Unreachable& error) {
    why = error.what();
  }
  return false;
}

void fetch_all(const Download& what, Partial& part) {
  if (part.size() > 0) {
    what.say(fmt::format("{}: going on after {}", what.to.filename().string(),
                         format_bytes(static_cast<double>(part.size()))));
  }
  std::string why;
  std::uintmax_t most = part.size();
  for (int tries = 0; what.bytes == 0 || part.size() != what.bytes;) {
    if (fetch_rest(what, part, why)) return;
    tries = part.size() > most ? 1 : tries + 1;
    most = std::max(most, part.size());
    if (tries == kTries && part.size() == 0) throw Unreachable(why);
    require(tries < kTries, ErrorCode::io, "{}: {} bytes of {} came: {}",
            what.to.filename().string(), part.size(), what.bytes, why);
    std::this_thread::sleep_for(std::chrono::milliseconds(200) * (1 << tries));
  }
}

}  // namespace

bool discard_partial(const fs::path& part) {
  const int file = ::open(part.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const bool free = lock_file(file, Lock::alone_or_not) && ::unlink(part.c_str()) == 0;
  ::close(file);
  return free;
}

void check_sum(const fs::path& file, const std::string& sha256, const fs::path& to, bool quiet) {
  const int in = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0) fail_to("cannot open", file, errno);
  std::vector<std::byte> buffer(kBuffer);
  std::error_code unknown;
  const auto all = static_cast<double>(fs::file_size(file, unknown));
  Progress progress("checking " + to.filename().string());
  Sha256 sum;
  double done = 0;
  ssize_t n = 0;
  while ((n = ::read(in, buffer.data(), buffer.size())) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    sum.add(std::span(buffer).first(static_cast<std::size_t>(n)));
    done += static_cast<double>(n);
    if (!quiet) progress.update(done / all);
  }
  const int error = errno;
  ::close(in);
  if (n < 0) fail_to("cannot read", file, error);
  const std::string found = sum.finish();
  require(
      found == sha256, ErrorCode::bad_file,
      "{}: its SHA-256 is {}, and should be {}: it was damaged on the way and is deleted; fetch "
      "it again",
      to.string(), found, sha256);
}

void download(const Download& what) {
  std::error_code unknown;
  if (fs::exists(what.to, unknown)) return;
  fs::create_directories(what.to.parent_path(), unknown);
  require(!unknown, ErrorCode::io, "{}: cannot create the folder: {}",
          what.to.parent_path().string(), unknown.message());
  Partial part(what.to, what.tag, what.say);
  if (part.done()) return;
  if (what.bytes > 0) {
    if (part.size() > what.bytes) part.clear();
    require_room(what.to, what.bytes - part.size());
  }
  try {
    fetch_all(what, part);
    require(part.size() >= kMagic.size(), ErrorCode::bad_file,
            "{}: the server sends {} bytes, which are no model", what.url, part.size());
    part.check_begin(what.url);
    if (!what.sha256.empty()) check_sum(part.path(), what.sha256, what.to, what.quiet);
  } catch (const Error& error) {
    // There is nothing to go on from.
    if (error.code() == ErrorCode::bad_file || what.tag.empty()) part.discard();
    throw;
  }
  part.commit(what.to);
}

}  // namespace ballast::hub
