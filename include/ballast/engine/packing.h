// Where a model's basis for packed contexts is: see ballast/pack.h.
#pragma once

#include <filesystem>
#include <memory>

#include "ballast/pack.h"

namespace ballast {

class Model;

/// Where `ballast calibrate` keeps it: beside calibration_path(), named KEY.pack. Empty: there is
/// no such folder.
std::filesystem::path pack_basis_path(const Model& model);

/// The basis of a model: beside its file (model.gguf.pack; in a folder ballast.pack), or at
/// pack_basis_path(). Null: there is none. Throws Error if a file is damaged, or of another model.
std::shared_ptr<const PackBasis> find_pack_basis(const Model& model);

}  // namespace ballast
