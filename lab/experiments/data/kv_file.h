// Queries, keys and values in a safetensors file: tensors layer.{i}.q, layer.{i}.k and
// layer.{i}.v, each [heads, tokens, dim], of any floating-point type. layer.{i}.scores, [KV heads,
// tokens] in F32, are those of a replay pass.
#pragma once

#include <array>
#include <filesystem>
#include <vector>

#include "ballast/engine/safetensors.h"
#include "experiments/data/kv_source.h"

namespace ballast {

class KvFile : public KvSource {
 public:
  using KvSource::read;

  /// Layer numbers may have gaps. All layers have the same shape; query heads are a multiple of KV
  /// heads. Throws Error that names file and tensor.
  explicit KvFile(const std::filesystem::path& path);

  std::size_t layer_number(std::size_t i) const override { return layers_[i].number; }
  /// The metadata `scale` and `softcap`, which `ballast capture` writes. Throws Error where they
  /// are no numbers or out of range.
  Logits logits() const override;
  Rotary rotary() const override;
  std::vector<float> scores(std::size_t layer, std::size_t kv_head) const override;
  std::string score_name() const override;
  void read(Part part, std::size_t layer, std::size_t head, std::size_t first,
            MutableMatrix out) const override;

 private:
  struct Layer {
    std::size_t number = 0;
    std::array<const TensorView*, 3> parts{};  ///< by Part
  };
  void find_layers();
  KvShape check_layer(const Layer& layer) const;

  Safetensors file_;
  std::vector<Layer> layers_;
};

}  // namespace ballast
