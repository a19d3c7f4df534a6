// GGUF's quantized blocks, one block at a time.
//
// A block of the plain types holds 32 numbers with one scale (and one offset); a block of the K
// types holds 256 numbers in groups of 16 or 32, whose small-integer scales share a float16 scale.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ballast/engine/tensor.h"

namespace ballast {

struct BlockCodec {
  void (*decode)(const std::uint8_t* block, float* out);
  void (*encode)(const float* numbers, std::uint8_t* block);
};

/// `type` must be quantized; block_size() and block_bytes() say how much the functions touch.
const BlockCodec& block_codec(TensorType type);

/// The 16 values of IQ4_NL, to be multiplied by a block's scale.
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

void decode_q4_0(const std::uint8_t* block, float* out);
void decode_q4_1(const std::uint8_t* block, float* out);
void decode_q5_0(const std::uint8_t* block, float* out);
void decode_q5_1(const std::uint8_t* block, float* out);
void decode_q8_0(const std::uint8_t* block, float* out);
void decode_q2_k(const std::uint8_t* block, float* out);
void decode_q3_k(const std::uint8_t* block, float* out);
void decode_q4_k(const std::uint8_t* block, float* out);
void decode_q5_k(const std::uint8_t* block, float* out);
void decode_q6_k(const std::uint8_t* block, float* out);
void decode_iq4_nl(const std::uint8_t* block, float* out);

void encode_q4_0(const float* numbers, std::uint8_t* block);
void encode_q4_1(const float* numbers, std::uint8_t* block);
void encode_q5_0(const float* numbers, std::uint8_t* block);
void encode_q5_1(const float* numbers, std::uint8_t* block);
void encode_q8_0(const float* numbers, std::uint8_t* block);
void encode_q2_k(const float* numbers, std::uint8_t* block);
void encode_q3_k(const float* numbers, std::uint8_t* block);
void encode_q4_k(const float* numbers, std::uint8_t* block);
void encode_q5_k(const float* numbers, std::uint8_t* block);
void encode_q6_k(const float* numbers, std::uint8_t* block);
void encode_iq4_nl(const float* numbers, std::uint8_t* block);

}  // namespace ballast
