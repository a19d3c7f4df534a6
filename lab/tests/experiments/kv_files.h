// Files of queries, keys and values for tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ballast/engine/safetensors.h"
#include "support.h"

namespace ballast::test {

/// A tensor of normal numbers, or of the numbers given.
struct TestTensor {
  std::vector<std::size_t> shape;
  TensorType type = TensorType::f32;
  std::map<std::size_t, float> set = {};  ///< numbers to replace, by index
};

inline void write_tensors(const std::filesystem::path& path,
                          const std::map<std::string, TestTensor>& tensors) {
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    declarations.push_back({name, tensor.type, tensor.shape});
  }
  SafetensorsWriter writer(path, declarations);
  std::uint64_t seed = 1;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t count = element_count(tensor.shape);
    if (tensor.type == TensorType::f32) {  // raw: encode() would refuse what is not finite
      Matrix numbers = random_matrix(1, count, seed++);
      for (auto [i, x] : tensor.set) numbers.data()[i] = x;
      writer.write(std::as_bytes(std::span(numbers.data(), count)));
    } else {
      writer.write(std::vector<std::byte>(tensor_bytes(tensor.type, count)));
    }
  }
  writer.commit();
}

/// The tensors of one layer.
inline std::map<std::string, TestTensor> layer(std::size_t heads, std::size_t kv_heads,
                                               std::size_t tokens, std::size_t dim) {
  return {{"layer.0.q", {{heads, tokens, dim}}},
          {"layer.0.k", {{kv_heads, tokens, dim}}},
          {"layer.0.v", {{kv_heads, tokens, dim}}}};
}

}  // namespace ballast::test
