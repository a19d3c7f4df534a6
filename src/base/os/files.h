// Files as systems have them: descriptors, locks, pipes, rights; standard input, output and error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

namespace ballast {

/// A file of the system that closes.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close();
  int number() const { return number_; }  ///< -1: none

 private:
  int number_ = -1;
};

/// The two ends of a pipe, which other programs do not get. Throws Error.
struct Pipe {
  Descriptor out, in;
};
Pipe make_pipe();
/// Calls on it do not wait, and other programs do not get it.
void make_nonblocking(int file);

/// Until the file is closed; released where the process ends. Locks are of open files, not of
/// processes.
enum class Lock { alone_or_not, alone, shared };
/// Waits for others unless `alone_or_not`. Returns false with errno where there is no lock,
/// EWOULDBLOCK where another has it.
bool lock_file(int file, Lock how);

/// Writes all of it; else errno says why.
bool write_all(int file, std::string_view bytes);
/// Waits until the device has what was written. As fsync(), with errno.
int sync_file(int file);

/// What committing a file asks of the system, with errno: a seam where tests put faults.
struct FileCalls {
  int (*sync)(int file);
  int (*rename)(const char* from, const char* to);
};
/// The calls in use, those of the system unless a test has changed them.
FileCalls& file_calls();

/// Fills `number` at random; false where the system has none.
bool random_number(std::uint64_t& number);

/// Whether this user may write into a folder, or run a program; else errno says why.
bool may_write(const std::filesystem::path& folder);
bool may_run(const std::filesystem::path& program);
/// Nanoseconds since 1970 when a file was written; 0: unknown.
std::int64_t written_at(const std::filesystem::path& file);

/// A folder that goes with its content. Others cannot read it.
class TemporaryFolder {
 public:
  /// `name` is what its own begins with, an absolute path or one in the folder of temporary files.
  /// Throws Error.
  explicit TemporaryFolder(const std::filesystem::path& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Wakes a thread that waits: from other threads and from handlers of signals. Throws Error.
class Wakeup {
 public:
  Wakeup();
  /// Readable from wake() to clear().
  int descriptor() const { return pipe_.out.number(); }
  void wake() const noexcept;  ///< async-signal-safe
  void clear() const noexcept;
  /// Returns once it is woken.
  void wait() const noexcept;

 private:
  Pipe pipe_ = make_pipe();
};

enum class Stream { in, out, error };

bool is_terminal(Stream stream);
/// Columns of the terminal that standard output is; 0: it is none, or does not say.
std::size_t terminal_columns();
/// What standard input is.
enum class Input { pipe, file, other };
Input standard_input();
/// False where nothing can be read within these milliseconds.
bool input_comes(int milliseconds);
/// Writes at once, without a buffer. Async-signal-safe.
void write_now(Stream stream, std::string_view text) noexcept;

}  // namespace ballast
