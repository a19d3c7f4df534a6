// The header of a safetensors file.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tensor.h"

namespace ballast {

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::size_t> shape;
    std::size_t begin = 0;  ///< bytes from the end of the header
    std::size_t end = 0;
  };
  std::vector<Entry> tensors;  ///< as listed
  std::map<std::string, std::string> metadata;
};

/// Parses the header and checks the schema, duplicate names, dtypes, and that each shape matches
/// its offsets. Memory is proportional to the text. Errors begin with `file`.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::string_view file);

/// The inverse, padded with spaces to a multiple of 8 bytes; offsets are those of the entries.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace ballast
