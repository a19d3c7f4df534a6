// The program `ballast`: runs the subcommand and reports an error as one line on standard error.
// Exit codes: 1 failure, 2 wrong usage, 128 + n signal n.
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "ballast/error.h"
#include "ballast/threads.h"
#include "ballast/version.h"
#include "base/partial_files.h"
#include "cli/command.h"
#include "report/progress.h"

namespace ballast::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kWrongUsage = 2;

/// Removes partial files. Async-signal-safe.
extern "C" void on_signal(int signal) {
  remove_partial_files();
  if (::isatty(STDERR_FILENO) == 1) {
    // Removes a progress line, but keeps an unfinished answer.
    const std::string_view end = Progress::visible() ? "\r\033[K" : "\n";
    [[maybe_unused]] auto written = ::write(STDERR_FILENO, end.data(), end.size());
  }
  ::_exit(128 + signal);
}

void handle_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    // The parent process may have ignored the signal (nohup).
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);  // write errors report it, and partial files are removed
}

/// The arguments, quoted for a shell.
std::string quoted(int argc, char** argv) {
  std::string out = "ballast";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool plain =
        !word.empty() &&
        word.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%") ==
            std::string_view::npos;
    out += ' ';
    if (plain) {
      out += word;
      continue;
    }
    out += '\'';
    for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

std::string typed;

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

int complain(const std::string& what, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "ballast: %s\n", one_line(what).c_str());
  return code;
}

/// The command that the arguments led to, as typed: "ballast eval attention".
const CLI::App* asked_for(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string full_name(const CLI::App* app) {
  std::string name = app->get_name();
  for (const CLI::App* p = app->get_parent(); p != nullptr; p = p->get_parent()) {
    name = p->get_name() + " " + name;
  }
  return name;
}

std::string names_of_commands(const CLI::App* app) {
  std::string out;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    out += (out.empty() ? "" : ", ") + command->get_name();
  }
  return out;
}

/// The usage error in one line.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = asked_for(&app);
  const std::string help = "; see " + full_name(at) + " --help";
  const std::vector<std::string> extra = app.remaining(true);
  const std::string commands = names_of_commands(at);
  if (!commands.empty()) {
    const std::string known = "known: " + commands;
    if (extra.empty()) return full_name(at) + " needs a command; " + known + help;
    if (extra[0].starts_with("-")) return "unknown option " + extra[0] + help;
    return "unknown command '" + extra[0] + "'; " + known + help;
  }
  if (!extra.empty()) {
    return (extra[0].starts_with("-") ? "unknown option " + extra[0]
                                      : "unexpected argument '" + extra[0] + "'") +
           help;
  }
  const std::string what = error.what();
  const std::size_t repeated = what.find(": At Most 1 required");
  if (repeated != std::string::npos) {
    return what.substr(0, repeated) + " is given more than once" + help;
  }
  return what + help;
}

/// The library would read -1 as the largest value and 010 as 8.
void check_whole_numbers(CLI::App& app) {
  const CLI::Validator whole(
      [](std::string& text) {
        std::uint64_t number = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, number);
        if (error != std::errc() || stop != end) return text + " is not a whole number from 0";
        text = std::to_string(number);
        return std::string();
      },
      "");
  for (CLI::Option* option : app.get_options([](CLI::Option* o) {
         const std::string type = o->get_type_name();
         return type == "N" || type == "K" || type == "UINT";
       })) {
    option->transform(whole);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    check_whole_numbers(*command);
  }
}

/// Shows a flag that may have a value as it is to be typed.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, is_positional);
    const std::size_t value = name.find('{');
    return value == std::string::npos ? name : name.substr(0, value) + "[=FILE]";
  }
};

int run(int argc, char** argv) {
  typed = quoted(argc, argv);
  CLI::App app("Small, accurate key-value caches for language models.", "ballast");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", "ballast " BALLAST_VERSION);
  app.require_subcommand(0, 1);  // a missing subcommand is reported below
  app.fallthrough();             // --threads may follow the command
  app.footer("Example:\n  ballast eval attention --synth --methods 'balancekv;uniform'");
  int threads = 0;
  app.add_option("--threads", threads, "Threads to use; all cores if not given")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  std::function<void()> task;
  for (AddCommand add : commands()) add(app, task);
  check_whole_numbers(app);
  try {
    app.parse(argc, argv);
    if (!task) throw CLI::RequiredError("a command");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return complain(usage_error(app, error), kWrongUsage);
    // --help and --version come as exceptions too.
    if (dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
      print(std::string(error.what()) + "\n");
    } else {
      const CLI::App* at = asked_for(&app);
      print(at->help(at == &app ? "" : full_name(at->get_parent())));
    }
    flush_output();
    return 0;
  }
  if (threads > 0) set_threads(threads);
  task();
  flush_output();
  return 0;
}

int run_safely(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const BrokenPipe&) {
    return 128 + SIGPIPE;
  } catch (const Error& error) {
    return complain(error.what(), kFailure);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailure);
  } catch (const std::exception& error) {
    return complain(std::string("internal error: ") + error.what(), kFailure);
  }
}

}  // namespace

const std::string& command_line() { return typed; }

}  // namespace ballast::cli

int main(int argc, char** argv) {
  ballast::cli::handle_signals();
  return ballast::cli::run_safely(argc, argv);
}
