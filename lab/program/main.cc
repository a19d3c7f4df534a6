// The program `ballast-eval`: experiments, and what makes and shows their files. `ballast eval
// lines` and `ballast-eval lines` are the same.
#include <algorithm>
#include <array>

#include "cli/lab.h"
#include "cli/run_program.h"
#include "program/commands.h"

namespace ballast::cli {
namespace {

constexpr std::array kCommands = {&add_eval,  &add_bench,   &add_report,  &add_inspect_vectors,
                                  &add_synth, &add_capture, &add_compress};
constexpr std::array kTools = {"bench", "report", "inspect", "synth", "capture", "compress"};

bool is_tool(std::string_view word) { return std::ranges::find(kTools, word) != kTools.end(); }

/// A name that is no other command is that of an experiment.
void add_or_drop_eval(std::vector<std::string>& words) {
  const std::string_view first = command_word(words);
  if (first == "eval") {
    const auto at = std::ranges::find(words, "eval");
    if (is_tool(command_word({at + 1, words.end()}))) words.erase(at);
  } else if (!is_tool(first) && std::ranges::find(words, "--version") == words.end()) {
    words.insert(words.begin(), "eval");
  }
}

}  // namespace
}  // namespace ballast::cli

int main(int argc, char** argv) {
  using namespace ballast::cli;
  const Program program = {"Experiments on key-value caches, and what makes and shows their files.",
                           "Example:\n  ballast eval attention --help", kCommands,
                           add_or_drop_eval};
  return run_program(program, argc, argv);
}
