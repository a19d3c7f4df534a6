// Layouts of GGUF's quantized blocks. Decoders, encoders and GEMM kernels take every byte offset
// from this table.
//
// Order of the codes within a block:
//   32 elements, 4 or 5 bits   byte i of 16: element i in the low nibble, i + 16 in the high one
//   fifth bits (Q5_0, Q5_1)    bit i of 32: element i
//   8 bits (Q8_0)              byte i: element i, signed
//   2 bits (K types)           32 bytes hold 128 elements: bits 0-1 elements 0-31, bits 2-3 the
//   next 4 bits (Q4_K, Q5_K)        32 bytes hold 64 elements: low nibbles 0-31, high nibbles 32-63
//   4 bits (Q6_K)              64 bytes hold 128 elements: low nibbles 0-63, high nibbles 64-127
//   third bits (Q3_K) and fifth bits (Q5_K)   bit g of byte i of 32: element 32 g + i
#pragma once

#include <cstdint>

namespace ballast::quant {

/// Offsets count bytes from the start of a block.
struct BlockLayout {
  int elements;  ///< 32, or 256 for the K types
  int bytes;
  int group;         ///< elements that share a scale: 16 or 32
  int zero_point;    ///< the code of zero
  int scale;         ///< float16 scale of the block
  int min;           ///< float16 minimum; of K types the scale of the groups' integer minima
  int group_scales;  ///< integer scales of the groups, and minima where `min` exists
  int high_bits;     ///< the bits of the codes beyond those at `codes`
  int codes;

  constexpr bool has_min() const { return min >= 0; }
  constexpr bool has_high_bits() const { return high_bits >= 0; }
};

// clang-format off
inline constexpr int kNone = -1;  ///< the type has no such field
//                                   elements bytes group zero scale   min  group_scales high codes
inline constexpr BlockLayout kQ4_0  = { 32,    18,   32,   8,    0, kNone, kNone, kNone,    2};
inline constexpr BlockLayout kQ4_1  = { 32,    20,   32,   0,    0,     2, kNone, kNone,    4};
inline constexpr BlockLayout kQ5_0  = { 32,    22,   32,  16,    0, kNone, kNone,     2,    6};
inline constexpr BlockLayout kQ5_1  = { 32,    24,   32,   0,    0,     2, kNone,     4,    8};
inline constexpr BlockLayout kQ8_0  = { 32,    34,   32,   0,    0, kNone, kNone, kNone,    2};
inline constexpr BlockLayout kQ2_K  = {256,    84,   16,   0,   80,    82,     0, kNone,   16};
inline constexpr BlockLayout kQ3_K  = {256,   110,   16,   4,  108, kNone,    96,     0,   32};
inline constexpr BlockLayout kQ4_K  = {256,   144,   32,   0,    0,     2,     4, kNone,   16};
inline constexpr BlockLayout kQ5_K  = {256,   176,   32,   0,    0,     2,     4,    16,   48};
inline constexpr BlockLayout kQ6_K  = {256,   210,   16,  32,  208, kNone,   192,   128,    0};
inline constexpr BlockLayout kIq4Nl = { 32,    18,   32,   0,    0, kNone, kNone, kNone,    2};
inline constexpr BlockLayout kFp4   = { 32,    18,   32,   0,    0, kNone, kNone, kNone,    2};
// clang-format on

/// IQ4_NL: the value of each 4-bit code, before the block's scale.
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
/// FP4: twice the number that each code of E2M1 is, a sign, two bits of exponent and one of
/// mantissa.
inline constexpr std::int8_t kFp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace ballast::quant
