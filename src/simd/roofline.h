// Loops that do nothing but what a machine does fastest: the floors of measurements. Each runs on
// one thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ballast::kernels {

/// Reads every byte once. `bytes` is a multiple of 64, `data` aligned to 64.
std::uint64_t read_bytes(const std::byte* data, std::size_t bytes);

/// Multiply-adds of numbers in registers, `rounds` times as many as hide their latency. Returns how
/// many numbers were multiplied.
double f32_multiply_adds(std::size_t rounds);

/// The same in bfloat16. Only where has_avx512_bf16().
double bf16_multiply_adds(std::size_t rounds);

/// The same of words, in pairs, added up in 32 bits: what products of integers are made of. Only
/// where has_avx2().
double int16_multiply_adds(std::size_t rounds);

}  // namespace ballast::kernels
