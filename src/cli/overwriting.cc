#include "cli/overwriting.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/fail.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kWritten = {
    "--out", "--save-cache", "--json", "--csv", "--markdown", "--plot", "--write-model"};

}  // namespace

void refuse_overwriting(const std::string& output, std::span<const std::string> inputs) {
  std::error_code unknown;
  if (!fs::is_regular_file(output, unknown)) return;  // new, or a device
  for (const std::string& input : inputs) {
    require(!fs::equivalent(output, input, unknown) || unknown,
            "{}: the command reads this file and would overwrite it; name another one to write",
            output);
  }
}

void refuse_overwriting(const CLI::App& command) {
  std::vector<std::string> inputs, outputs;
  for (const CLI::Option* option : command.get_options()) {
    const bool written = std::ranges::find(kWritten, option->get_name()) != kWritten.end();
    for (const std::string& value : option->results()) {
      (written ? outputs : inputs).push_back(value);
      std::error_code unknown;
      if (option->get_name() != "--model" || !fs::is_directory(value, unknown)) continue;
      for (const auto& file : fs::directory_iterator(value, unknown)) {
        inputs.push_back(file.path().string());
      }
    }
  }
  for (const std::string& output : outputs) refuse_overwriting(output, inputs);
}

}  // namespace ballast::cli
