#include "cli/in_process.h"

#include <CLI/CLI.hpp>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_choice.h"
#include "report/progress.h"

namespace ballast::cli {

std::string run_eval(std::span<const std::string> words,
                     const std::function<void(double)>& advance) {
  std::vector<std::string> all = {"eval"};
  all.insert(all.end(), words.begin(), words.end());
  set_command_line(all);
  CLI::App app("", "ballast");
  std::function<void()> task;
  add_eval(app, task);
  finish_options(app);
  std::vector<const char*> argv = {"ballast"};
  for (const std::string& word : all) argv.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
    if (!task) throw CLI::RequiredError("a command");
  } catch (const CLI::ParseError& error) {
    require(error.get_exit_code() != 0, "help is on the command line: ballast eval --help");
    fail("{}", usage_error(app, error));
  }
  choose_model(app);
  const CapturedOutput output;
  const Progress::Observer observer(advance);
  task();
  return output.text();
}

}  // namespace ballast::cli
