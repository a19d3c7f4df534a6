// The machine's peak rates, from which floors of measured times follow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

namespace ballast {

struct Machine {
  std::size_t threads = 1;
  double read_bandwidth = 0;   ///< bytes a second, from memory, all threads reading
  double f32_flops = 0;        ///< float32 multiply-adds count as two
  double bf16_flops = 0;       ///< bfloat16 pairs, summed in float32; 0: the machine has none
  double int16_flops = 0;      ///< int16 pairs, summed in int32; 0: the machine has none
  double int8_tile_flops = 0;  ///< int8, by tiles; 0: the machine has none, or they are not used
  double bf16_tile_flops = 0;  ///< bfloat16, by tiles, likewise
  /// Why bfloat16 tiles are not used though the machine has them (amx_bf16_refusal()); else empty.
  std::string bf16_tiles_refused;
  /// Of vectors; GEMM and attention by tiles have more.
  double flops() const { return std::max({f32_flops, bf16_flops, int16_flops}); }
};

/// Measures for about a second with threads() threads and returns the best of several passes.
Machine measure_machine();

}  // namespace ballast
