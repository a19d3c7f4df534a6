// Scalar decoders and encoders of GGUF's quantized blocks, one block at a time.
//
// A block of 32 elements has one float16 scale, and one minimum in Q4_1 and Q5_1. A block of the K
// types has 256 elements in groups of 16 or 32, whose integer scales share a float16 scale.
// formats/quant_blocks.h has the layouts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ballast/engine/tensor.h"
#include "formats/quant_blocks.h"

namespace ballast {

struct BlockCodec {
  void (*decode)(const std::uint8_t* block, float* out);
  void (*encode)(const float* x, std::uint8_t* block);  ///< null: see loaded_as()
};

/// `type` must be quantized. The functions touch block_size() elements and block_bytes() bytes.
const BlockCodec& block_codec(TensorType type);

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
void decode_fp4(const std::uint8_t* block, float* out);

// quant_decode_grid.cc
void decode_iq4_xs(const std::uint8_t* block, float* out);
/// The same as eight blocks of IQ4_NL, whose scales are rounded to float16.
void iq4_nl_of_iq4_xs(const std::uint8_t* block, std::uint8_t* out);
void decode_iq3_xxs(const std::uint8_t* block, float* out);
void decode_iq3_s(const std::uint8_t* block, float* out);
void decode_iq2_xxs(const std::uint8_t* block, float* out);
void decode_iq2_xs(const std::uint8_t* block, float* out);
void decode_iq2_s(const std::uint8_t* block, float* out);
void decode_iq1_s(const std::uint8_t* block, float* out);
void decode_iq1_m(const std::uint8_t* block, float* out);
void decode_mxfp4(const std::uint8_t* block, float* out);
/// Makes a block of FP4 with the same numbers. False: float16 does not hold its scale.
bool fp4_of_mxfp4(const std::uint8_t* block, std::uint8_t* out);
void decode_tq1_0(const std::uint8_t* block, float* out);
void decode_tq2_0(const std::uint8_t* block, float* out);

void encode_q4_0(const float* x, std::uint8_t* block);
void encode_q4_1(const float* x, std::uint8_t* block);
void encode_q5_0(const float* x, std::uint8_t* block);
void encode_q5_1(const float* x, std::uint8_t* block);
void encode_q8_0(const float* x, std::uint8_t* block);
void encode_q2_k(const float* x, std::uint8_t* block);
void encode_q3_k(const float* x, std::uint8_t* block);
void encode_q4_k(const float* x, std::uint8_t* block);
void encode_q5_k(const float* x, std::uint8_t* block);
void encode_q6_k(const float* x, std::uint8_t* block);
void encode_iq4_nl(const float* x, std::uint8_t* block);
void encode_fp4(const float* x, std::uint8_t* block);

}  // namespace ballast
