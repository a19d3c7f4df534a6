#include "cli/overwriting.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/fail.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kWritten = {
    "--out", "--save-cache", "--json", "--csv", "--markdown", "--plot", "--write-model"};

// A folder's files, and the pieces of a split model, whose names differ in one number:
// "-00002-of-".
std::vector<std::string> files_of_model(const fs::path& model) {
  constexpr std::size_t kEnding = std::string_view("-00001-of-00003.gguf").size();
  std::error_code unknown;
  const bool folder = fs::is_directory(model, unknown);
  const std::string name = model.filename().string();
  const bool split =
      name.size() > kEnding && name.find("-of-", name.size() - kEnding) != std::string::npos;
  std::vector<std::string> files = {model.string()};
  if (!folder && !split) return files;
  const fs::path parent = model.has_parent_path() ? model.parent_path() : fs::path(".");
  for (const auto& file : fs::directory_iterator(folder ? model : parent, unknown)) {
    const std::string other = file.path().filename().string();
    if (folder || (other.size() == name.size() &&
                   std::equal(other.begin(), other.end() - kEnding, name.begin()))) {
      files.push_back(file.path().string());
    }
  }
  return files;
}

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
    const std::string name = option->get_name();
    const bool written = std::ranges::find(kWritten, name) != kWritten.end();
    for (const std::string& value : option->results()) {
      (written ? outputs : inputs).push_back(value);
      if (name != "--model") continue;
      for (std::string& file : files_of_model(value)) inputs.push_back(std::move(file));
    }
  }
  for (const std::string& output : outputs) refuse_overwriting(output, inputs);
}

}  // namespace ballast::cli
