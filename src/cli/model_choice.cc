#include "cli/model_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "ballast/engine/model_file.h"
#include "base/fail.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "hub/catalogue.h"
#include "hub/local.h"
#include "hub/reference.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

/// The validator that marks a model that is needed.
constexpr const char* kNeeded = "needed model";

bool is_needed(CLI::Option& model) {
  try {
    return model.get_validator(kNeeded) != nullptr;
  } catch (const CLI::OptionNotFound&) {
    return false;
  }
}

bool runs(const hub::LocalModel& model) {
  try {
    ModelFile{model.path};
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string only_model() {
  std::vector<std::string> names;
  std::string path;
  for (const hub::LocalModel& model : hub::local_models()) {
    if (std::ranges::find(names, model.name) != names.end() || !runs(model)) continue;
    if (names.empty()) path = model.path.string();
    names.push_back(model.name);
  }
  const hub::KnownModel& first = hub::catalogue().front();
  require(!names.empty(),
          "no model is here: give -m FILE, or fetch one with ballast pull {} ({}); ballast models "
          "lists others",
          first.name, format_bytes(static_cast<double>(first.bytes)));
  require(names.size() == 1, "{} models are here: say which one with -m: {}", names.size(),
          fmt::join(names, ", "));
  return path;
}

}  // namespace

void spell_out_hf(std::vector<std::string>& words) {
  for (std::string& word : words) {
    if (word == "--") break;
    if (word == "-hf" || word.starts_with("-hf=")) word.insert(0, "-");
    if (word == "--hf-repo" || word == "-hfr") word = "--hf";
  }
}

void add_optional_model(CLI::App& app, std::string& path, const std::string& help) {
  app.add_option("-m,--model", path,
                 help +
                     ": a GGUF file, a Hugging Face folder, or the name of one that is here "
                     "(ballast models)")
      ->type_name("MODEL");
  app.add_option("--hf", "-hf, in place of -m: a model of the hub, fetched if it is not here")
      ->type_name("ORG/REPO[:QUANT]");
  const std::string offline = "With -hf: fetch nothing";
  app.add_flag("--offline", offline);
}

void add_model_option(CLI::App& app, std::string& path) {
  add_optional_model(app, path);
  CLI::Option* model = app.get_option("--model");
  model->description(model->get_description() + "; the one that is here if not given");
  model->check(CLI::Validator([](std::string&) { return std::string(); }, "", kNeeded));
}

std::string resolve_model(const std::string& text) {
  std::error_code unknown;
  if (text.empty() || fs::exists(text, unknown)) return text;
  const std::vector<hub::LocalModel> found = hub::find_local(text);
  if (!found.empty()) return found.front().path.string();
  require(hub::find_known(text) == nullptr, "{}: this model is not here; type: ballast pull {}",
          text, text);
  const bool file = hub::lower_case(text).ends_with(".gguf") || text.ends_with(".safetensors") ||
                    text.ends_with(".json");
  require(file || !hub::is_repository(text), ErrorCode::io,
          "{0}: no such file or folder, nor a model that is here; -hf {0} fetches one of the hub",
          text);
  if (file || text.find('/') != std::string::npos) return text;
  std::vector<std::string> names;
  for (const hub::LocalModel& model : hub::local_models()) names.push_back(model.name);
  for (const hub::KnownModel& model : hub::catalogue()) names.emplace_back(model.name);
  fail(ErrorCode::io,
       "{}: no such file or folder, nor a model of this name{}; ballast models lists all", text,
       did_you_mean(hub::lower_case(text), names));
}

void choose_model(CLI::App& app, const FetchModel& fetch) {
  CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  CLI::Option* model = command->get_option_no_throw("--model");
  CLI::Option* hf = command->get_option_no_throw("--hf");
  if (model == nullptr || hf == nullptr) return;
  require(model->count() == 0 || hf->count() == 0, "give -m or -hf, not both");
  std::string path;
  if (hf->count() > 0) {
    const std::string& name = hf->results().front();
    if (fetch) {
      path = fetch(name, command->get_option("--offline")->count() > 0);
    } else {
      const std::vector<hub::LocalModel> found = hub::find_local(name);
      require(!found.empty(), "{0}: not here; ballast pull {0} fetches it", name);
      path = found.front().path.string();
    }
  } else if (model->count() > 0) {
    path = resolve_model(model->results().front());
  } else if (is_needed(*model)) {
    path = only_model();
  }
  if (path.empty()) return;
  model->clear();
  model->add_result(path);
  model->run_callback();
}

}  // namespace ballast::cli
