// Where a model's basis for packed contexts is: see ballast/pack.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "ballast/pack.h"

namespace ballast {

class Model;

/// Where `ballast calibrate` keeps it: beside calibration_path(), named KEY.pack. Empty: there is
/// no such folder.
std::filesystem::path pack_basis_path(const Model& model);

/// The basis of a model: beside its file (model.gguf.pack; in a folder ballast.pack), or at
/// pack_basis_path(). Null: there is none. Throws Error if a file is damaged, or of another model.
std::shared_ptr<const PackBasis> find_pack_basis(const Model& model);

/// Packs caches of the model with its basis. One that was read before is used again as long as its
/// file is the same. Null: the model has no basis. Throws Error as find_pack_basis() does.
std::shared_ptr<const PackCodec> find_pack_codec(const Model& model);

/// The preset of a form such as "1/16". Throws Error that lists those of the model's basis, or says
/// how to make one.
PackPreset pack_preset(const Model& model, std::string_view form);
/// The smallest of the basis that keeps at least 1/`most`: what stores use where nothing is said.
/// Step 0: there is none.
PackPreset default_pack_preset(const Model& model, std::uint32_t most = 16);

}  // namespace ballast
