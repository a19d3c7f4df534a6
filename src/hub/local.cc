#include "hub/local.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "base/fail.h"
#include "hub/catalogue.h"
#include "hub/reference.h"

namespace ballast::hub {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return {};
  return fs::path(value);
}

fs::path cache_home() {
  if (const auto given = from_environment("XDG_CACHE_HOME")) return *given;
  if (const auto home = from_environment("HOME")) return *home / ".cache";
  return fs::temp_directory_path();
}

/// All files below a folder that are not hidden, by name; none where it cannot be read.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(folder, options, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with('.')) {
      if (it->is_directory(error)) it.disable_recursion_pending();
    } else if (it->is_regular_file(error)) {  // where a link leads, too
      out.push_back(it->path());
    }
    error.clear();
  }
  std::ranges::sort(out);
  return out;
}

std::uintmax_t bytes_of(const std::vector<fs::path>& files) {
  std::uintmax_t sum = 0;
  for (const fs::path& file : files) {
    std::error_code unknown;
    const std::uintmax_t bytes = fs::file_size(file, unknown);
    if (!unknown) sum += bytes;
  }
  return sum;
}

bool is_gguf(const fs::path& file) { return lower_case(file.string()).ends_with(".gguf"); }

/// Fills in what the file's name and the repository say.
void name(LocalModel& model) {
  const std::string file = model.path.filename().string();
  model.quant = quant_of(file);
  for (const KnownModel& known : catalogue()) {
    std::string flat(known.repository);
    std::ranges::replace(flat, '/', '_');
    const bool same =
        (lower_case(model.repository) == lower_case(known.repository) &&
         lower_case(file) == lower_case(known.file)) ||
        (model.repository.empty() &&
         lower_case(file) == lower_case(flat + "_" + std::string(known.file)));  // llama.cpp
    if (!same) continue;
    model.name = known.name;
    model.licence = known.licence;
    model.repository = known.repository;
    return;
  }
  model.name = model.repository.empty() ? model.path.stem().string() : model.repository;
  if (!model.repository.empty() && !model.quant.empty()) model.name += ":" + model.quant;
}

/// The model that a GGUF file is, or begins; none for the other pieces of one.
std::optional<LocalModel> of_file(const fs::path& file, std::string repository, std::string owner) {
  const Piece piece = piece_of(file.string());
  if (piece.number > 1 || file.filename().string().starts_with("mmproj")) return {};
  LocalModel out;
  out.path = file;
  out.repository = std::move(repository);
  out.owner = std::move(owner);
  out.files = {file};
  for (std::size_t i = 2; i <= piece.count; ++i) {
    out.files.emplace_back(name_of_piece(file.string(), i));
  }
  out.bytes = bytes_of(out.files);
  name(out);
  return out;
}

void add_own(std::vector<LocalModel>& out) {
  const fs::path folder = store();
  for (const fs::path& file : files_below(folder)) {
    if (!is_gguf(file)) continue;
    // ORG/REPO/FILE; of a URL HOST/FILE.
    const fs::path parent = file.lexically_relative(folder).parent_path();
    const auto depth = std::distance(parent.begin(), parent.end());
    if (auto model = of_file(file, depth == 2 ? parent.generic_string() : "", "")) {
      out.push_back(std::move(*model));
    }
  }
}

fs::path hub_cache() {
  if (const auto given = from_environment("HF_HUB_CACHE")) return *given;
  if (const auto home = from_environment("HF_HOME")) return *home / "hub";
  return cache_home() / "huggingface" / "hub";
}

/// models--ORG--REPO/snapshots/COMMIT/FILE.
void add_hub_cache(std::vector<LocalModel>& out) {
  constexpr std::string_view kFolder = "models--", kOwner = "the hub's cache";
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator it(hub_cache(), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with(kFolder)) folders.push_back(it->path());
  }
  std::ranges::sort(folders);
  for (const fs::path& folder : folders) {
    std::string repository = folder.filename().string().substr(kFolder.size());
    const std::size_t mark = repository.find("--");
    if (mark == std::string::npos) continue;
    repository.replace(mark, 2, "/");
    const std::vector<fs::path> files = files_below(folder / "snapshots");
    for (const fs::path& file : files) {
      if (is_gguf(file)) {
        if (auto model = of_file(file, repository, std::string(kOwner))) {
          out.push_back(std::move(*model));
        }
      } else if (file.filename() == "config.json") {
        LocalModel model;
        model.path = file.parent_path();
        for (const fs::path& other : files) {
          if (other.parent_path() == model.path) model.files.push_back(other);
        }
        if (std::ranges::none_of(model.files,
                                 [](const auto& f) { return f.extension() == ".safetensors"; })) {
          continue;
        }
        model.name = model.repository = repository;
        model.owner = kOwner;
        model.bytes = bytes_of(model.files);
        out.push_back(std::move(model));
      }
    }
  }
}

void add_llama_cpp(std::vector<LocalModel>& out) {
  const auto given = from_environment("LLAMA_CACHE");
  for (const fs::path& file : files_below(given ? *given : cache_home() / "llama.cpp")) {
    if (!is_gguf(file)) continue;
    if (auto model = of_file(file, "", "llama.cpp's cache")) out.push_back(std::move(*model));
  }
}

bool is_named(const LocalModel& model, const std::string& text) {
  const std::string file = lower_case(model.path.filename().string());
  return text == lower_case(model.name) || text == file || text + ".gguf" == file;
}

bool is_of(const LocalModel& model, const std::string& repository, const std::string& quant) {
  if (!quant.empty() && quant != lower_case(model.quant)) return false;
  if (!model.repository.empty()) return lower_case(model.repository) == repository;
  std::string flat = repository + "_";  // llama.cpp's name for a file of it
  std::ranges::replace(flat, '/', '_');
  return !model.owner.empty() && lower_case(model.path.filename().string()).starts_with(flat);
}

}  // namespace

fs::path store() {
  if (const auto given = from_environment("BALLAST_MODELS")) return *given;
  return cache_home() / "ballast" / "models";
}

std::vector<LocalModel> local_models() {
  std::vector<LocalModel> out;
  add_own(out);
  add_hub_cache(out);
  add_llama_cpp(out);
  return out;
}

std::vector<LocalModel> find_local(std::string_view text) {
  const std::string wanted = lower_case(text);
  const bool repository = is_repository(wanted);
  const std::size_t colon = repository ? wanted.find(':') : std::string::npos;
  const std::string quant = colon == std::string::npos ? "" : wanted.substr(colon + 1);
  std::vector<LocalModel> out;
  for (LocalModel& model : local_models()) {
    if (is_named(model, wanted) || (repository && is_of(model, wanted.substr(0, colon), quant))) {
      out.push_back(std::move(model));
    }
  }
  std::ranges::stable_sort(out, {}, [](const LocalModel& m) { return rank_of_quant(m.quant); });
  return out;
}

}  // namespace ballast::hub
