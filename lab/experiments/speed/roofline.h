// Loops that reach a machine's peak bandwidth and arithmetic rates: the roofline of measurements.
// Each runs on one thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ballast::kernels {

/// Reads every byte once. `bytes` is a multiple of 64, `data` aligned to 64.
std::uint64_t read_bytes(const std::byte* data, std::size_t bytes);

/// Multiply-adds of float32 elements in registers: `rounds` times as many as hide their latency.
/// Returns the number of elements multiplied.
double f32_multiply_adds(std::size_t rounds);

/// The same in bf16. Requires has_avx512_bf16().
double bf16_multiply_adds(std::size_t rounds);

/// The same for int16 pairs, accumulated in int32, as integer GEMV and GEMM do. Requires
/// has_avx2().
double int16_multiply_adds(std::size_t rounds);

/// The same for products of tiles of int8. Requires has_amx_int8().
double int8_tile_multiply_adds(std::size_t rounds);

/// The same in bf16. Requires has_amx_bf16().
double bf16_tile_multiply_adds(std::size_t rounds);

}  // namespace ballast::kernels
