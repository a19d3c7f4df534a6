#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/interruption.h"

namespace ballast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNotThere = 127;  ///< as shells have it

/// A file descriptor that closes.
struct Descriptor {
  int number = -1;
  Descriptor() = default;
  explicit Descriptor(int n) : number(n) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  void close() {
    if (number >= 0) ::close(std::exchange(number, -1));
  }
};

/// All that the new process needs before it becomes the program.
struct Start {
  char* const* argv;
  int in, out, messages;
  pid_t parent;
  rlimit processor, memory;
  sigset_t signals;
};

/// Becomes the program. It shares its memory with the parent, which waits: nothing but system
/// calls.
[[noreturn]] void become(const Start& s) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != s.parent) ::_exit(126);  // it has ended before
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGBUS, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CPU, &s.processor);
  ::setrlimit(RLIMIT_AS, &s.memory);
  ::setrlimit(RLIMIT_CORE, &none);
  if (::dup2(s.in, STDIN_FILENO) < 0 || ::dup2(s.out, STDOUT_FILENO) < 0 ||
      ::dup2(s.messages, STDERR_FILENO) < 0) {
    ::_exit(126);
  }
  ::sigprocmask(SIG_SETMASK, &s.signals, nullptr);
  ::execvp(s.argv[0], s.argv);
  ::_exit(kNotThere);
}

/// A running program, which is killed at the end.
class Child {
 public:
  /// Like fork() without a copy of the page tables, which are large beside a model.
  explicit Child(Start start) {
    sigset_t all;
    ::sigfillset(&all);
    start.parent = ::getpid();
    // A handler of this process must not run in the other one.
    ::pthread_sigmask(SIG_SETMASK, &all, &start.signals);
    id_ = ::vfork();
    if (id_ == 0) become(start);
    ::pthread_sigmask(SIG_SETMASK, &start.signals, nullptr);
  }
  ~Child() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool started() const { return id_ > 0; }
  /// As waitpid() says it; nothing: it still runs.
  std::optional<int> status() {
    int out = 0;
    if (::waitpid(id_, &out, WNOHANG) != id_) return std::nullopt;
    id_ = 0;
    return out;
  }

 private:
  pid_t id_ = 0;
};

/// The bytes as a file that begins at its beginning: a stranger's file has no path.
void fill(int file, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    require(n > 0 || errno == EINTR, ErrorCode::io, "{}: {}", name, std::strerror(errno));
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  ::lseek(file, 0, SEEK_SET);
}

}  // namespace

std::optional<std::string> output_of(std::vector<std::string> words, const std::string& package,
                                     std::string_view input, const std::string& name,
                                     const ChildLimits& limits) {
  const Descriptor in(::memfd_create("input", MFD_CLOEXEC));
  require(in.number >= 0, ErrorCode::io, "{}: no memory file: {}", name, std::strerror(errno));
  fill(in.number, input, name);
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, ErrorCode::io, "{}: no pipe: {}", name,
          std::strerror(errno));
  const Descriptor out(ends[0]);
  Descriptor of_child(ends[1]);
  const Descriptor messages(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto processor = static_cast<rlim_t>(limits.processor.count());
  Child child({argv.data(),
               in.number,
               of_child.number,
               messages.number,
               0,
               {processor, processor + 1},
               {limits.memory, limits.memory},
               {}});
  require(child.started(), ErrorCode::io, "{}: {} cannot be started: {}", name, words[0],
          std::strerror(errno));
  of_child.close();
  const Clock::time_point end = Clock::now() + limits.time;
  std::string text;
  std::array<char, std::size_t{1} << 16> buffer;
  std::optional<int> status;
  for (bool open = true; !status;) {
    Interruption::check();
    require(Clock::now() < end, ErrorCode::bad_file,
            "{}: {} takes longer than {} s; make it a text first, or give a part of it", name,
            words[0], limits.time.count());
    pollfd wanted{open ? out.number : -1, POLLIN, 0};
    ::poll(&wanted, 1, open ? 100 : 1);
    if (open && wanted.revents != 0) {
      const ssize_t n = ::read(out.number, buffer.data(), buffer.size());
      if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
      open = n > 0 || (n < 0 && errno == EINTR);
      if (text.size() > limits.output) return std::nullopt;
    }
    if (!open) status = child.status();
  }
  const int signal = WIFSIGNALED(*status) ? WTERMSIG(*status) : 0;
  require(signal != SIGXCPU && signal != SIGKILL, ErrorCode::bad_file,
          "{}: {} works longer than {} s on it; make it a text first, or give a part of it", name,
          words[0], limits.processor.count());
  require(!WIFEXITED(*status) || WEXITSTATUS(*status) != kNotThere, ErrorCode::unsupported,
          "{}: reading it takes the program {} (Debian: apt-get install {})", name, words[0],
          package);
  return *status == 0 ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace ballast
