// Tiny models with random weights, written as GGUF files or Hugging Face folders.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ballast/engine/gguf.h"
#include "ballast/engine/safetensors.h"
#include "temp_dir.h"

namespace ballast {

/// A tensor to be written; numbers are drawn from a fixed seed and its name.
struct TinyTensor {
  std::string name;
  std::vector<std::size_t> shape;
};

/// Normal numbers; norm weights around 1.
inline std::vector<float> tiny_numbers(const TinyTensor& tensor) {
  std::mt19937 rng(static_cast<std::uint32_t>(std::hash<std::string>()(tensor.name)));
  std::normal_distribution<float> normal(0.0f, 0.2f);
  std::vector<float> numbers(element_count(tensor.shape));
  bool norm = tensor.name.find("norm") != std::string::npos && tensor.name.ends_with("weight");
  for (float& x : numbers) x = normal(rng) + (norm ? 1.0f : 0.0f);
  return numbers;
}

/// `spoiled`: the name of a tensor whose last number becomes `instead`; empty: none.
inline void write_tiny_safetensors(const std::filesystem::path& path,
                                   const std::vector<TinyTensor>& tensors,
                                   const std::string& spoiled = "", float instead = 0.0f) {
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const TinyTensor& t : tensors) declarations.push_back({t.name, TensorType::f32, t.shape});
  SafetensorsWriter writer(path, declarations);
  for (const TinyTensor& t : tensors) {
    std::vector<float> numbers = tiny_numbers(t);
    if (t.name == spoiled) numbers.back() = instead;
    writer.write(std::span<const float>(numbers));
  }
  writer.commit();
}

/// The tensors of a layer are those with "{}" in their names.
inline std::vector<TinyTensor> in_layers(const std::vector<TinyTensor>& tensors,
                                         std::size_t layers) {
  std::vector<TinyTensor> out;
  for (const TinyTensor& t : tensors) {
    std::size_t at = t.name.find("{}");
    for (std::size_t i = 0; i < (at == std::string::npos ? 1 : layers); ++i) {
      out.push_back(t);
      if (at != std::string::npos) out.back().name.replace(at, 2, std::to_string(i));
    }
  }
  return out;
}

}  // namespace ballast
