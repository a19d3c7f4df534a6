// The models that `ballast pull NAME` knows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ballast::hub {

struct KnownModel {
  std::string_view name;        ///< as one types it
  std::string_view parameters;  ///< "135M"
  std::string_view repository;  ///< of the hub
  std::string_view file;
  std::string_view licence;
  std::string_view why;  ///< what one takes it for

  // Of the file that was run here; of others the hub says both when it is asked.
  std::string_view sha256 = {};
  std::uintmax_t bytes = 0;

  // A Python package that holds the same file, for where the hub cannot be reached.
  std::string_view package = {};       ///< "name==version"
  std::string_view package_file = {};  ///< inside of it
};

/// From small to large.
std::span<const KnownModel> catalogue();
/// The model of this name, in upper or lower case; null if the catalogue lacks it.
const KnownModel* find_known(std::string_view name);

/// ASCII letters in lower case.
std::string lower_case(std::string_view text);

}  // namespace ballast::hub
