// The tensor names and layouts of each model family.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ballast/engine/model_config.h"
#include "ballast/engine/model_file.h"

namespace ballast {

enum class Presence : std::uint8_t { never, optional, always };

/// The row order of a tensor that fuses several weights.
enum class Fusion : std::uint8_t {
  none,
  rows,           ///< all rows of the first, then all of the second, …
  rows_per_head,  ///< for each head its query rows, its key rows, its value rows (GPT-NeoX)
};

/// One tensor of a family's files. "{}" in a name stands for the layer; ".weight" or ".bias"
/// follow.
struct TensorRule {
  Weight first;  ///< the weight; for fused tensors the first of them (query, ffn_gate)
  std::string_view gguf;
  std::string_view hf;
  Presence bias = Presence::never;
  Presence weight = Presence::always;
  Fusion gguf_fusion = Fusion::none;
  Fusion hf_fusion = Fusion::none;
};

struct FamilyFacts {
  Family family;
  std::string_view gguf;      ///< general.architecture; empty: no such files
  std::string_view hf;        ///< model_type of config.json; empty: none
  std::string_view hf_class;  ///< as config.json's "architectures" has it
  RopeStyle gguf_rope;        ///< as llama.cpp's converter lays out the rows
  std::span<const TensorRule> rules;
};

std::span<const FamilyFacts> families();
const FamilyFacts& facts_of(Family family);

/// Null if unknown.
const FamilyFacts* family_of_gguf(std::string_view architecture);
const FamilyFacts* family_of_hf(std::string_view model_type);

/// "llama, qwen2, …", for messages.
std::string gguf_architectures();
std::string hf_architectures();

}  // namespace ballast
