// The models that are on this machine: our own, and those that other programs have fetched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::hub {

struct LocalModel {
  std::string name;  ///< for -m: of the catalogue, ORG/REPO:QUANT, or the file's without its ending
  std::filesystem::path path;                ///< what a model is opened with
  std::vector<std::filesystem::path> files;  ///< all of its pieces, or of the folder
  std::string repository;                    ///< empty: not known
  std::string quant;
  std::string licence;  ///< of the catalogue; empty: not known
  std::string owner;    ///< "the hub's cache", "llama.cpp's cache"; empty: ours
  std::uintmax_t bytes = 0;
};

/// Where `ballast pull` keeps models: BALLAST_MODELS, or ballast/models in the user's cache folder.
std::filesystem::path store();

/// Our own, then the hub's cache folder (HF_HUB_CACHE, HF_HOME), then llama.cpp's (LLAMA_CACHE);
/// of each in the order of their names. No file is opened.
std::vector<LocalModel> local_models();

/// Those that `text` names, the best first: a name, a file's name, ORG/REPO or ORG/REPO:QUANT.
/// Upper and lower case are the same.
std::vector<LocalModel> find_local(std::string_view text);

}  // namespace ballast::hub
