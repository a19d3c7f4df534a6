// Writes folder/safetensors and folder/gguf: valid files for the fuzz targets to start from.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/engine/gguf.h"
#include "ballast/engine/safetensors.h"

namespace {

using namespace ballast;
namespace fs = std::filesystem;

void write_safetensors(const fs::path& folder) {
  fs::create_directories(folder);
  SafetensorsWriter small(folder / "small",
                          {{"a", TensorType::f32, {2, 3}},
                           {"b", TensorType::bf16, {4}},
                           {"scalar", TensorType::i64, {}},
                           {"none", TensorType::u8, {0}}},
                          {{"format", "pt"}});
  small.write(std::vector<float>(6, 1.0f));
  small.write(std::vector<float>(4, -2.0f));
  small.write(std::vector<float>(1, 3.0f));
  small.commit();
  SafetensorsWriter(folder / "empty", {}).commit();
}

/// One tensor of every type, and every type of metadata.
void write_types(const fs::path& path) {
  GgufWriter w(path, 8);
  w.add("u8", std::uint8_t{1});
  w.add("i16", std::int16_t{-1});
  w.add("u64", std::uint64_t{1} << 40);
  w.add("f64", 0.5);
  w.add("yes", true);
  w.add("text", "text");
  w.add_array("texts", std::vector<std::string>{"a", "", "bc"});
  w.add_array("numbers", std::span<const float>(std::vector<float>{1, 2}));
  std::vector<std::size_t> shape = {256};
  int last = static_cast<int>(TensorType::iq4_nl);
  for (int t = static_cast<int>(TensorType::q4_0); t <= last; ++t) {
    w.declare(to_string(static_cast<TensorType>(t)), static_cast<TensorType>(t), shape);
  }
  for (int t = static_cast<int>(TensorType::q4_0); t <= last; ++t) {
    w.write(std::vector<float>(256, 1.0f));
  }
  w.commit();
}

/// A whole model of one layer.
void write_model(const fs::path& path) {
  GgufWriter w(path, 8);
  w.add("general.architecture", "llama");
  for (std::string key : {"block_count", "attention.head_count"}) {
    w.add("llama." + key, std::uint32_t{1});
  }
  for (std::string key : {"embedding_length", "feed_forward_length", "context_length"}) {
    w.add("llama." + key, std::uint32_t{4});
  }
  w.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  w.add("llama.rope.scaling.type", "yarn");
  w.add("llama.rope.scaling.factor", 2.0f);
  std::vector<std::size_t> square = {4, 4}, line = {4};
  std::size_t count = 0;
  for (std::string name :
       {"token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_output",
        "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"}) {
    w.declare(name + ".weight", TensorType::f16, square);
    count += 16;
  }
  for (std::string name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    w.declare(name + ".weight", TensorType::f16, line);
    count += 4;
  }
  std::vector<std::byte> zeros(count * 2);
  w.write(std::span<const std::byte>(zeros));
  w.commit();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
    return 2;
  }
  try {
    write_safetensors(fs::path(argv[1]) / "safetensors");
    fs::create_directories(fs::path(argv[1]) / "gguf");
    write_types(fs::path(argv[1]) / "gguf" / "types");
    write_model(fs::path(argv[1]) / "gguf" / "model");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
