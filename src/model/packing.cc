#include "ballast/engine/packing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "ballast/engine/calibration.h"
#include "ballast/engine/model.h"
#include "base/fail.h"

namespace ballast {

namespace fs = std::filesystem;

fs::path pack_basis_path(const Model& model) {
  const fs::path scores = calibration_path(model);
  return scores.empty() ? scores : scores.parent_path() / (calibration_key(model) + ".pack");
}

namespace {

/// The file of a model's basis; empty: there is none.
fs::path basis_file(const Model& model) {
  const fs::path& file = model.file().path();
  std::error_code unknown;
  const fs::path beside =
      fs::is_directory(file, unknown) ? file / "ballast.pack" : fs::path(file.string() + ".pack");
  for (const fs::path& path : {beside, pack_basis_path(model)}) {
    if (!path.empty() && fs::exists(path, unknown)) return path;
  }
  return {};
}

std::shared_ptr<const PackBasis> load_basis(const Model& model, const fs::path& path) {
  auto basis = std::make_shared<const PackBasis>(PackBasis::load(path));
  const CacheShape shape = model.cache_shape();
  require(basis->model == calibration_key(model) && basis->layers == shape.layers &&
              basis->kv_heads == shape.kv_heads && basis->key_dim == shape.key_dim &&
              basis->value_dim == shape.value_dim,
          ErrorCode::bad_file, "{}: a basis for packing of {}, the model is {}: remove the file",
          path.string(), basis->model, calibration_key(model));
  return basis;
}

/// The codec made last. A server packs and unpacks again and again, and a codec takes a tenth of a
/// second to make.
struct LastCodec {
  std::mutex mutex;
  fs::path path;
  fs::file_time_type changed;
  std::shared_ptr<const PackCodec> codec;
};

}  // namespace

std::shared_ptr<const PackBasis> find_pack_basis(const Model& model) {
  const fs::path path = basis_file(model);
  return path.empty() ? nullptr : load_basis(model, path);
}

std::shared_ptr<const PackCodec> find_pack_codec(const Model& model) {
  const fs::path path = basis_file(model);
  if (path.empty()) return nullptr;
  static LastCodec last;
  const std::scoped_lock lock(last.mutex);
  const fs::file_time_type changed = fs::last_write_time(path);
  if (last.codec == nullptr || last.path != path || last.changed != changed) {
    last.codec = std::make_shared<const PackCodec>(load_basis(model, path));
    last.path = path;
    last.changed = changed;
  }
  return last.codec;
}

PackPreset pack_preset(const Model& model, std::string_view form) {
  const auto codec = find_pack_codec(model);
  require(codec != nullptr,
          "{}: there is no basis to pack contexts with; make one with: ballast calibrate -m {}",
          model.file().path().string(), model.file().path().string());
  std::vector<std::string> known;
  for (const PackPreset& preset : codec->basis().presets) {
    known.push_back(fmt::format("1/{}", preset.divisor));
    if (known.back() == form) return preset;
  }
  fail("packed contexts of '{}': expected off or one of {}, which the model's basis has", form,
       fmt::join(known, ", "));
}

PackPreset default_pack_preset(const Model& model, std::uint32_t most) {
  PackPreset out;
  const auto codec = find_pack_codec(model);
  if (codec == nullptr) return out;
  for (const PackPreset& preset : codec->basis().presets) {
    if (preset.divisor <= most && preset.divisor > out.divisor) out = preset;
  }
  return out;
}

}  // namespace ballast
