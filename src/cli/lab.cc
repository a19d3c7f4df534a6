#include "cli/lab.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/fail.h"
#include "base/os/process.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "ballast-eval";

struct LabCommand {
  const char* name;
  const char* title;
};

constexpr std::array kCommands = {
    LabCommand{"synth", "Make a file of queries, keys and values that look like a model's"},
    LabCommand{"capture", "Write the queries, keys and values of a model that reads a text"},
    LabCommand{"compress", "Compress keys and values with a method and write what it keeps"},
    LabCommand{"eval", "Run an experiment of the papers"},
    LabCommand{"report",
               "Put results of experiments (--json=FILE) on one HTML page with tables and plots"},
    LabCommand{"bench",
               "Measure how fast a model runs with each method, against the machine's limits"}};

}  // namespace

void add_lab(CLI::App& parent, std::function<void()>&) {
  for (const LabCommand& command : kCommands) parent.add_subcommand(command.name, command.title);
}

std::string_view command_word(std::span<const std::string> words) {
  bool value = false;
  for (const std::string& word : words) {
    if (!value && !word.starts_with('-')) return word;
    value = !value && word == "--threads";
  }
  return {};
}

void hand_over_to_lab(std::vector<std::string>& words) {
  const std::string_view word = command_word(words);
  const auto named = [&](const LabCommand& command) { return word == command.name; };
  if (std::ranges::any_of(kCommands, named)) start_lab(words, word);
}

void start_lab(std::span<const std::string> words, std::string_view what) {
  std::vector<std::string> all = {kProgram};
  all.insert(all.end(), words.begin(), words.end());
  const fs::path folder = program_folder();
  if (!folder.empty()) become_program(folder / kProgram, all);
  if (errno == ENOENT || folder.empty()) become_program(kProgram, all);
  if (errno == ENOENT) {
    fail(ErrorCode::io,
         "{} needs the program {}, which is neither in {} nor on PATH; the tarball and the Debian "
         "package have it, and cmake --build build --target ballast_eval makes it",
         what, kProgram, folder.string());
  }
  fail(ErrorCode::io, "{}: cannot start {}: {}", what, kProgram, std::strerror(errno));
}

}  // namespace ballast::cli
