// Programs of others that are started; this one: its files, cores and signals.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// What a program may take. A stranger's file of a few KB can ask it for years of work.
struct ChildLimits {
  std::size_t output = std::size_t{64} << 20;  ///< bytes
  std::size_t memory = std::size_t{1} << 30;   ///< bytes of its address space
  std::chrono::seconds processor{20};          ///< seconds of its own work
  std::chrono::seconds time{60};               ///< by the clock
};

/// What a program found in PATH writes to its standard output, given `input` through memory as its
/// standard input; nothing if it fails or writes more than it may. Its messages are dropped. It
/// ends with this process, however that ends, and is killed where Interruption::check() throws.
/// `words`: the program and its arguments; `package`: of Debian, that has it; `name`: of the input.
/// Throws Error: unsupported where there is no such program, bad_file where it takes longer than it
/// may.
std::optional<std::string> output_of(std::vector<std::string> words, const std::string& package,
                                     std::string_view input, const std::string& name,
                                     const ChildLimits& limits = {});

/// Runs a program found in PATH with these words, the first its name, and waits; it says and is
/// given nothing. Whether it succeeded.
bool run_program_silently(std::vector<std::string> words);

/// Turns this process into a program, found in PATH if it is a bare name; returns only where that
/// fails, with errno.
void become_program(const std::filesystem::path& program, std::vector<std::string> words);

/// The folder of the running program; empty if the system does not say.
std::filesystem::path program_folder();

/// The number of files that this process may have open, raised to the most that it can be.
std::size_t raise_open_files();

/// Handles a signal during its life, unless the parent process ignores it, as nohup does.
class SignalHandler {
 public:
  /// `once`: the second signal is handled as before.
  SignalHandler(int signal, void (*handler)(int), bool once = false);
  ~SignalHandler();
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;

  /// Whoever handled the signal before does so now. Async-signal-safe.
  void pass_on() const noexcept;

 private:
  int signal_;
  struct sigaction before_ {};
};

/// Handles these signals from now on, likewise.
void handle_signals(std::initializer_list<int> signals, void (*handler)(int));
/// Calls `handler` with the address where a mapped file has no bytes any more. Where it returns,
/// the process ends as without it.
void handle_bus_errors(void (*handler)(const void* address));

/// Cores that this process may use, 1 or more.
std::size_t usable_cores();
/// Forks that led to this process from the first call on. A child has none of its parent's threads.
const std::atomic<unsigned>& forks();
/// Bytes of a core's first cache for data; 0: unknown.
std::size_t first_cache_bytes();
/// Whether an ARM64 processor has SDOT; false on others.
bool processor_has_sdot();
/// arch_prctl() of Linux on x86-64, as errno; ENOSYS elsewhere.
int call_arch_prctl(long code, long argument);

}  // namespace ballast
