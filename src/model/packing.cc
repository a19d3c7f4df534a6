#include "ballast/engine/packing.h"

#include "ballast/engine/calibration.h"
#include "ballast/engine/model.h"
#include "base/fail.h"

namespace ballast {

namespace fs = std::filesystem;

fs::path pack_basis_path(const Model& model) {
  const fs::path scores = calibration_path(model);
  return scores.empty() ? scores : scores.parent_path() / (calibration_key(model) + ".pack");
}

std::shared_ptr<const PackBasis> find_pack_basis(const Model& model) {
  const fs::path& file = model.file().path();
  std::error_code unknown;
  const fs::path beside =
      fs::is_directory(file, unknown) ? file / "ballast.pack" : fs::path(file.string() + ".pack");
  for (const fs::path& path : {beside, pack_basis_path(model)}) {
    if (path.empty() || !fs::exists(path, unknown)) continue;
    auto basis = std::make_shared<const PackBasis>(PackBasis::load(path));
    const CacheShape shape = model.cache_shape();
    require(basis->model == calibration_key(model) && basis->layers == shape.layers &&
                basis->kv_heads == shape.kv_heads && basis->key_dim == shape.key_dim &&
                basis->value_dim == shape.value_dim,
            ErrorCode::bad_file, "{}: a basis for packing of {}, the model is {}: remove the file",
            path.string(), basis->model, calibration_key(model));
    return basis;
  }
  return nullptr;
}

}  // namespace ballast
