// The type codes of tensors and values in GGUF files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ballast/engine/gguf.h"

namespace ballast {

inline constexpr std::uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr std::uint32_t kGgufAlignment = 32;      // unless general.alignment says otherwise
inline constexpr std::size_t kGgufDimensions = 4;

/// Nothing if the library cannot decode the type.
std::optional<TensorType> tensor_type_of_gguf(std::uint32_t number);

/// Throws Error if the format has no such type (unsigned integers, booleans).
std::uint32_t gguf_number_of(TensorType type);

/// "IQ2_XXS" or "number 99": for messages about types that the library cannot decode.
std::string gguf_type_name(std::uint32_t number);

/// Bytes of one value; 0 for strings and arrays.
std::size_t gguf_value_bytes(GgufType type);

}  // namespace ballast
