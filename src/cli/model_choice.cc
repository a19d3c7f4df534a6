#include "cli/model_choice.h"

#include "base/fail.h"
#include "hub/choice.h"
#include "hub/local.h"

namespace ballast::cli {
namespace {

/// The validator that marks a model that is needed.
constexpr const char* kNeeded = "needed model";

bool is_needed(CLI::Option& model) {
  try {
    return model.get_validator(kNeeded) != nullptr;
  } catch (const CLI::OptionNotFound&) {
    return false;
  }
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
    path = hub::resolve_model(model->results().front());
  } else if (is_needed(*model)) {
    path = hub::only_model();
  }
  if (path.empty()) return;
  model->clear();
  model->add_result(path);
  model->run_callback();
}

}  // namespace ballast::cli
