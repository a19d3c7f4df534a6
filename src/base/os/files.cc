#include "base/os/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fail.h"

namespace ballast {

void Descriptor::close() {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

Pipe make_pipe() {
  int ends[2];
#if defined(__linux__)
  const bool made = ::pipe2(ends, O_CLOEXEC) == 0;
#else
  const bool made = ::pipe(ends) == 0;
#endif
  require(made, ErrorCode::io, "no pipe: {}", std::strerror(errno));
  Pipe out{Descriptor(ends[0]), Descriptor(ends[1])};
  for (int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return out;
}

void make_nonblocking(int file) {
  ::fcntl(file, F_SETFD, FD_CLOEXEC);
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | O_NONBLOCK);
}

bool lock_file(int file, Lock how) {
  constexpr int kHow[] = {LOCK_EX | LOCK_NB, LOCK_EX, LOCK_SH};
  while (::flock(file, kHow[static_cast<int>(how)]) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

int sync_file(int file) {
#if defined(__APPLE__)
  if (::fcntl(file, F_FULLFSYNC) == 0) return 0;  // fsync() leaves it in the device's cache
#endif
  return ::fsync(file);
}

FileCalls& file_calls() {
  static FileCalls calls = {sync_file, std::rename};
  return calls;
}

bool random_number(std::uint64_t& number) { return ::getentropy(&number, sizeof number) == 0; }

bool may_write(const std::filesystem::path& folder) { return ::access(folder.c_str(), W_OK) == 0; }
bool may_run(const std::filesystem::path& program) { return ::access(program.c_str(), X_OK) == 0; }

std::int64_t written_at(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return 0;
#if defined(__APPLE__)
  const timespec& time = status.st_mtimespec;
#else
  const timespec& time = status.st_mtim;
#endif
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

TemporaryFolder::TemporaryFolder(const std::filesystem::path& name) {
  std::string path = (std::filesystem::temp_directory_path() / name).string() + "XXXXXX";
  require(::mkdtemp(path.data()) != nullptr, ErrorCode::io, "{}: cannot make the folder: {}", path,
          std::strerror(errno));
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Wakeup::Wakeup() {
  make_nonblocking(pipe_.in.number());
  make_nonblocking(pipe_.out.number());
}

void Wakeup::wake() const noexcept {
  const int before = errno;  // of what a signal interrupts
  [[maybe_unused]] const auto written = ::write(pipe_.in.number(), "", 1);
  errno = before;
}

void Wakeup::clear() const noexcept {
  char bytes[64];
  while (::read(pipe_.out.number(), bytes, sizeof bytes) > 0) {
  }
}

void Wakeup::wait() const noexcept {
  pollfd wanted{descriptor(), POLLIN, 0};
  while (::poll(&wanted, 1, -1) < 0 && errno == EINTR) {
  }
  clear();
}

bool is_terminal(Stream stream) { return ::isatty(static_cast<int>(stream)) == 1; }

std::size_t terminal_columns() {
  struct winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Input standard_input() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0) return Input::other;
  if (S_ISREG(status.st_mode)) return Input::file;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) ? Input::pipe : Input::other;
}

bool input_comes(int milliseconds) {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  return ::poll(&in, 1, milliseconds) != 0;
}

void write_now(Stream stream, std::string_view text) noexcept {
  [[maybe_unused]] const auto written = ::write(static_cast<int>(stream), text.data(), text.size());
}

}  // namespace ballast
