#include "cli/run_program.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "ballast/error.h"
#include "ballast/threads.h"
#include "ballast/version.h"
#include "base/mapped_file.h"
#include "base/os/files.h"
#include "base/os/memory.h"
#include "base/os/process.h"
#include "base/partial_files.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_choice.h"
#include "cli/overwriting.h"
#include "cli/pull.h"
#include "report/progress.h"

namespace ballast::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kWrongUsage = 2;

constexpr const char* kGoesOn = " has what was found; the same command goes on from there";

/// Removes partial files and names what stays. Async-signal-safe.
void on_signal(int signal) {
  remove_partial_files();
  if (is_terminal(Stream::error)) {
    // Removes a progress line, but keeps an unfinished answer.
    write_now(Stream::error, Progress::visible() ? "\r\033[K" : "\n");
  }
  if (const char* path = resumable_file()) {
    for (const char* part : {"ballast: ", path, kGoesOn, "\n"}) write_now(Stream::error, part);
  }
  std::_Exit(128 + signal);
}

/// A model file that another program shortens while it is mapped. Async-signal-safe.
void on_bus_error(const void* address) {
  const char* path = mapped_path(address);
  if (path == nullptr) return;  // not ours
  remove_partial_files();
  for (const char* part :
       {"ballast: ", path,
        ": another program shortened the file while it was read; run the command again\n"}) {
    write_now(Stream::error, part);
  }
  std::_Exit(kFailure);
}

void handle_all_signals() {
  handle_bus_errors(on_bus_error);
  handle_signals({SIGINT, SIGTERM, SIGHUP}, on_signal);
  // Write errors report these, and partial files are removed: a reader that has left, a file that
  // becomes larger than it may (ulimit -f).
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int complain(const std::string& what, int code) {
  std::fflush(stdout);
  const char* path = resumable_file();
  tell(path == nullptr ? what : what + "; " + path + kGoesOn);
  return code;
}

/// --threads in each command's own help.
void add_threads(CLI::App& app, int& threads) {
  if (app.get_option_no_throw("--threads") == nullptr) {
    app.add_option("--threads", threads, "Threads to use; all cores if not given")
        ->transform(whole_number(1, 1024))
        ->type_name("N");
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    add_threads(*command, threads);
  }
}

int run(const Program& program, int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // As many programs have them: `ballast help run`, `ballast version`.
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  } else if (words == std::vector<std::string>{"version"}) {
    words = {"--version"};
  }
  spell_out_hf(words);
  if (program.prepare) program.prepare(words);
  set_command_line(words);
  CLI::App app(program.description, "ballast");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", "ballast " BALLAST_VERSION);
  app.require_subcommand(0, 1);  // a missing subcommand is reported below
  app.fallthrough();             // --threads may follow the command
  int threads = 0;
  bool check = false;
  app.add_flag("--check", check, "Check the command that follows and do nothing");
  std::function<void()> task;
  for (AddCommand add : program.commands) add(app, task);
  // Behind the commands, which would inherit it.
  app.footer(program.footer);
  add_threads(app, threads);
  finish_options(app);
  if (const std::string misread = misread_option(app, words); !misread.empty()) {
    return complain(misread, kWrongUsage);
  }
  try {
    app.parse(
        std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 wants the last first
    if (!task) throw CLI::RequiredError("a command");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return complain(usage_error(app, error), kWrongUsage);
    // --help and --version come as exceptions too.
    if (dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
      print(std::string(error.what()) + "\n");
    } else {
      const CLI::App* at = selected_command(&app);
      print(at->help(at == &app ? "" : full_name(at->get_parent())));
    }
    flush_output();
    return 0;
  }
  if (check) return 0;
  choose_model(app, fetch_model);
  refuse_overwriting(*selected_command(&app));
  if (threads > 0) set_threads(threads);
  task();
  flush_output();
  return 0;
}

int run_safely(const Program& program, int argc, char** argv) {
  try {
    return run(program, argc, argv);
  } catch (const BrokenPipe&) {
    return 128 + SIGPIPE;
  } catch (const Error& error) {
    return complain(error.what(),
                    error.code() == ErrorCode::invalid_argument ? kWrongUsage : kFailure);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailure);
  } catch (const std::exception& error) {
    return complain(std::string("internal error: ") + error.what(), kFailure);
  }
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  give_back_arrays();
  handle_all_signals();
  return run_safely(program, argc, argv);
}

}  // namespace ballast::cli
