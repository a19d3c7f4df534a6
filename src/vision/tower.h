// InternViT: what a vision transformer makes of a tile, in the width of a language model.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ballast/engine/tensor.h"
#include "ballast/matrix.h"
#include "gemm/matmul.h"
#include "model/weights.h"
#include "vision/tiles.h"

namespace ballast {

class Gguf;
class Safetensors;

struct TowerConfig {
  std::size_t layers = 0;
  std::size_t width = 0;
  std::size_t heads = 0;
  std::size_t ffn_width = 0;
  std::size_t out_width = 0;  ///< of the language model
  NormKind norm = NormKind::layer;
  float norm_epsilon = 1e-6f;
  std::size_t shuffle = 2;  ///< a token is made of shuffle × shuffle patches
  TileOptions tiles;

  std::size_t patches_across() const { return tiles.size / tiles.patch; }
  /// Tokens of a tile.
  std::size_t tokens() const {
    const std::size_t across = patches_across() / shuffle;
    return across * across;
  }
};

class Tower {
 public:
  /// The tower in a Hugging Face folder, of transformers' layout or of InternVL's own, or in a
  /// GGUF file ("mmproj") of llama.cpp's. `out_width`: of the language model. Throws Error that
  /// names the file and what is missing or wrong.
  Tower(const std::filesystem::path& path, std::size_t out_width);
  ~Tower();

  const TowerConfig& config() const { return config_; }
  /// Whether the folder holds a tower. A GGUF file beside the model's own may.
  static bool is_in(const std::filesystem::path& folder);

  /// out: tokens() × out_width. Runs on loop_threads() threads.
  void see(const Picture& tile, MutableMatrix out) const;

 private:
  struct Layer {
    Norm norm1, norm2, query_norm, key_norm;
    Linear query, key, value, attention_output, up, down;
    std::vector<float> scale1, scale2;
  };
  struct Names;

  void read_folder(const std::filesystem::path& path);
  void read_gguf(const std::filesystem::path& path);
  void check_config() const;
  void read_weights(const Names& names);
  const TensorView* find(const std::string& name) const;
  /// A tensor of `count` numbers as float32. Optional ones that are not there are empty.
  std::vector<float> numbers(const std::string& name, std::size_t count, bool optional = false);
  Norm norm(const std::string& name, std::size_t count, bool optional = false);
  /// Rows [part · rows, (part + 1) · rows) of a matrix of parts · rows × cols, and their bias.
  Linear linear(const std::string& name, std::size_t rows, std::size_t cols, std::size_t part = 0,
                std::size_t parts = 1);
  void attend_all(ConstMatrix query, ConstMatrix key, ConstMatrix value, MutableMatrix out) const;
  /// Patches that lie in one square, side by side in one row each.
  Matrix shuffled(const Matrix& states) const;

  std::string file_;    ///< for messages
  std::string prefix_;  ///< of all names
  std::unique_ptr<Safetensors> safetensors_;
  std::unique_ptr<Gguf> gguf_;
  TowerConfig config_;
  Linear patch_;
  std::vector<float> class_token_, positions_;
  std::vector<Layer> layers_;
  Norm last_norm_;  ///< of few models
  Norm projector_norm_;
  Linear projector1_, projector2_;
  std::deque<std::vector<float>> biases_;
};

}  // namespace ballast
