// A basis that packs each element by itself: any model has one, without a calibration.
#pragma once

#include <filesystem>

#include "ballast/engine/calibration.h"
#include "ballast/engine/model.h"
#include "ballast/engine/packing.h"

namespace ballast::test {

inline PackBasis identity_basis(const Model& model) {
  const CacheShape shape = model.cache_shape();
  PackBasis out;
  out.model = calibration_key(model);
  out.layers = shape.layers;
  out.kv_heads = shape.kv_heads;
  out.key_dim = shape.key_dim;
  out.value_dim = shape.value_dim;
  PackGroup& group = out.groups.emplace_back();
  for (std::size_t l = 0; l < shape.layers; ++l) {
    group.layers.push_back(l);
    for (std::size_t dim : {shape.key_dim, shape.value_dim}) {
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        for (std::size_t i = 0; i < dim * dim; ++i) {
          group.metric.push_back(i % (dim + 1) == 0 ? 1.0f : 0.0f);
        }
      }
    }
  }
  const std::size_t n = shape.layers * out.layer_width();
  group.mean.resize(n);
  group.variance.assign(n, 1.0f);
  group.basis.resize(n * n);
  for (std::size_t i = 0; i < n; ++i) group.basis[i * n + i] = 127;
  group.basis_scale.assign(n, 1.0f / 127);
  group.score_offsets.assign(shape.layers * shape.kv_heads, 0.0f);
  for (std::size_t s = 0; s < group.score_offsets.size(); ++s) {
    for (std::size_t i = 0; i < n; ++i) {  // values count, of the head's own layer
      const std::size_t at = i % out.layer_width();
      const bool own = i / out.layer_width() == s / shape.kv_heads;
      group.score_weights.push_back(own && at >= shape.kv_heads * shape.key_dim ? 0.1f : 0.0f);
    }
  }
  out.presets = {{4, 0.02f, 0.001f}, {16, 0.2f, 0.01f}};
  return out;
}

/// A link to a model in a folder, with such a basis beside it.
inline std::filesystem::path model_with_basis(const std::filesystem::path& model,
                                              const std::filesystem::path& folder) {
  const std::filesystem::path link = folder / "model.gguf";
  std::filesystem::create_symlink(model, link);
  identity_basis(Model(link)).save(folder / "model.gguf.pack");
  return link;
}

}  // namespace ballast::test
