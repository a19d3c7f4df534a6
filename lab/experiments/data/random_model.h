// Models with random weights, for speed measurements.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "ballast/engine/tensor.h"

namespace ballast {

/// Sizes of a Llama with tied embeddings. The defaults are the model of lab/docs/performance.md.
struct RandomModel {
  std::size_t layers = 12;
  std::size_t width = 768;
  std::size_t heads = 12;
  std::size_t kv = 4;     ///< KV heads; divides heads
  std::size_t head = 64;  ///< dimension of a head, even
  std::size_t hidden = 2048;
  std::size_t vocabulary = 32000;  ///< at least 260: special tokens and bytes, then words
  std::size_t positions = 2 << 20;
  TensorType type = TensorType::q8_0;  ///< of the matrices; norms are float32
};

/// "layers=2,width=64,type=q4_0"; missing keys keep their defaults. Throws Error on unknown keys,
/// values out of range and inconsistent sizes.
RandomModel parse_random_model(std::string_view text);
std::string to_string(const RandomModel& model);

/// Writes a GGUF file that other engines read too. Equal models give equal bytes.
void write_random_model(const RandomModel& model, const std::filesystem::path& path);

}  // namespace ballast
