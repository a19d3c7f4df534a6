#include "hub/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "ballast/engine/model_file.h"
#include "base/fail.h"
#include "base/nearest.h"
#include "hub/catalogue.h"
#include "hub/local.h"
#include "hub/reference.h"
#include "report/units.h"

namespace ballast::hub {
namespace {

namespace fs = std::filesystem;

bool runs(const LocalModel& model) {
  try {
    ModelFile{model.path};
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string only_model() {
  std::vector<std::string> names;
  std::string path;
  for (const LocalModel& model : local_models()) {
    if (std::ranges::find(names, model.name) != names.end() || !runs(model)) continue;
    if (names.empty()) path = model.path.string();
    names.push_back(model.name);
  }
  const KnownModel& first = catalogue().front();
  require(!names.empty(),
          "no model is here: give -m FILE, or fetch one with ballast pull {} ({}); ballast models "
          "lists others",
          first.name, format_bytes(static_cast<double>(first.bytes)));
  require(names.size() == 1, "{} models are here: say which one with -m: {}", names.size(),
          fmt::join(names, ", "));
  return path;
}

std::string resolve_model(const std::string& text) {
  std::error_code unknown;
  if (text.empty() || fs::exists(text, unknown)) return text;
  const std::vector<LocalModel> found = find_local(text);
  if (!found.empty()) return found.front().path.string();
  require(find_known(text) == nullptr, "{}: this model is not here; type: ballast pull {}", text,
          text);
  const bool file = lower_case(text).ends_with(".gguf") || text.ends_with(".safetensors") ||
                    text.ends_with(".json");
  require(file || !is_repository(text), ErrorCode::io,
          "{0}: no such file or folder, nor a model that is here; -hf {0} fetches one of the hub",
          text);
  if (file || text.find('/') != std::string::npos) return text;
  std::vector<std::string> names;
  for (const LocalModel& model : local_models()) names.push_back(model.name);
  for (const KnownModel& model : catalogue()) names.emplace_back(model.name);
  fail(ErrorCode::io,
       "{}: no such file or folder, nor a model of this name{}; ballast models lists all", text,
       did_you_mean(lower_case(text), names));
}

}  // namespace ballast::hub
