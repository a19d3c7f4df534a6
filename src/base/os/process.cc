#include "base/os/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <crt_externs.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/fail.h"
#include "base/interruption.h"
#include "base/os/files.h"

#if defined(__APPLE__)
#define environ (*_NSGetEnviron())  // libraries have no `environ`
#else
extern char** environ;
#endif

namespace ballast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNotThere = 127;  ///< as shells have it

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
#if defined(__linux__)
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // elsewhere it ends when it writes to nobody
#endif
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

/// A file without a path: a stranger's bytes have none.
Descriptor make_file() {
#if defined(__linux__)
  return Descriptor(::memfd_create("input", MFD_CLOEXEC));
#else
  std::string path = (std::filesystem::temp_directory_path() / "ballast-XXXXXX").string();
  Descriptor file(::mkstemp(path.data()));
  ::unlink(path.c_str());
  ::fcntl(file.number(), F_SETFD, FD_CLOEXEC);
  return file;
#endif
}

std::vector<char*> argv_of(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return argv;
}

void (*bus_error)(const void* address) = nullptr;

extern "C" void on_bus_error(int signal, siginfo_t* info, void*) {
  bus_error(info->si_addr);
  ::signal(signal, SIG_DFL);  // the instruction raises it again
}

void handle(int signal, void (*handler)(int), int flags, struct sigaction& before) {
  ::sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

std::optional<std::string> output_of(std::vector<std::string> words, const std::string& package,
                                     std::string_view input, const std::string& name,
                                     const ChildLimits& limits) {
  const Descriptor in = make_file();
  require(in.number() >= 0, ErrorCode::io, "{}: no memory file: {}", name, std::strerror(errno));
  require(write_all(in.number(), input), ErrorCode::io, "{}: {}", name, std::strerror(errno));
  ::lseek(in.number(), 0, SEEK_SET);
  auto [out, of_child] = make_pipe();
  const Descriptor messages(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const std::vector<char*> argv = argv_of(words);
  const auto processor = static_cast<rlim_t>(limits.processor.count());
  Child child({argv.data(),
               in.number(),
               of_child.number(),
               messages.number(),
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
    pollfd wanted{open ? out.number() : -1, POLLIN, 0};
    ::poll(&wanted, 1, open ? 100 : 1);
    if (open && wanted.revents != 0) {
      const ssize_t n = ::read(out.number(), buffer.data(), buffer.size());
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

bool run_program_silently(std::vector<std::string> words) {
  const std::vector<char*> argv = argv_of(words);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  for (int file : {STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&files, file, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  int status = 0;
  return error == 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

void become_program(const std::filesystem::path& program, std::vector<std::string> words) {
  ::execvp(program.c_str(), argv_of(words).data());
}

std::filesystem::path program_folder() {
  std::error_code unknown;
#if defined(__APPLE__)
  std::string path(4096, '\0');
  auto size = static_cast<std::uint32_t>(path.size());
  if (::_NSGetExecutablePath(path.data(), &size) != 0) return {};
  return std::filesystem::canonical(path.c_str(), unknown).parent_path();
#else
  return std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
#endif
}

std::size_t raise_open_files() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
#if defined(__APPLE__)  // takes no more, whatever rlim_max says
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, OPEN_MAX);
#else
  files.rlim_cur = files.rlim_max;
#endif
  ::setrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_NOFILE, &files);
  return static_cast<std::size_t>(files.rlim_cur);
}

SignalHandler::SignalHandler(int signal, void (*handler)(int), bool once) : signal_(signal) {
  handle(signal, handler, SA_RESTART | (once ? static_cast<int>(SA_RESETHAND) : 0), before_);
}
SignalHandler::~SignalHandler() { ::sigaction(signal_, &before_, nullptr); }

void SignalHandler::pass_on() const noexcept {
  ::sigaction(signal_, &before_, nullptr);
  ::raise(signal_);
}

void handle_signals(std::initializer_list<int> signals, void (*handler)(int)) {
  struct sigaction before = {};
  for (int signal : signals) handle(signal, handler, 0, before);
}

void handle_bus_errors(void (*handler)(const void* address)) {
  bus_error = handler;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

std::size_t usable_cores() {
#if defined(__linux__)
  cpu_set_t mine;
  if (::sched_getaffinity(0, sizeof mine, &mine) == 0) {
    return static_cast<std::size_t>(std::max(CPU_COUNT(&mine), 1));
  }
#endif
  return std::max(std::thread::hardware_concurrency(), 1u);
}

const std::atomic<unsigned>& forks() {
  static std::atomic<unsigned> count = 0;
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(registered);
  return count;
}

std::size_t first_cache_bytes() {
#if defined(__APPLE__)
  std::size_t bytes = 0, size = sizeof bytes;
  return ::sysctlbyname("hw.l1dcachesize", &bytes, &size, nullptr, 0) == 0 ? bytes : 0;
#elif defined(_SC_LEVEL1_DCACHE_SIZE)
  return static_cast<std::size_t>(std::max(::sysconf(_SC_LEVEL1_DCACHE_SIZE), 0L));
#else
  return 0;
#endif
}

bool processor_has_sdot() {
#if defined(__APPLE__)
  int has = 0;
  std::size_t size = sizeof has;
  return ::sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has != 0;
#elif defined(HWCAP_ASIMDDP)
  return (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

int call_arch_prctl([[maybe_unused]] long code, [[maybe_unused]] long argument) {
#if defined(__linux__) && defined(__x86_64__)
  return ::syscall(SYS_arch_prctl, code, argument) == 0 ? 0 : errno;
#else
  return ENOSYS;
#endif
}

}  // namespace ballast
