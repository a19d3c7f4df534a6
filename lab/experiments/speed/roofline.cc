#include "experiments/speed/roofline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/speed/roofline.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

std::uint64_t ReadBytes(const std::byte* data, std::size_t bytes) {
  const hn::CappedTag<std::uint64_t, 8> d;
  constexpr std::size_t kStep = sizeof(std::uint64_t) * hn::MaxLanes(d);
  auto a = hn::Zero(d), b = hn::Zero(d);
  const auto load = [&](std::size_t at) {
    return hn::LoadU(d, reinterpret_cast<const std::uint64_t*>(data + at));
  };
  std::size_t i = 0;
  for (; i + 4 * kStep <= bytes; i += 4 * kStep) {
    a = hn::Add(a, hn::Xor(load(i), load(i + kStep)));
    b = hn::Add(b, hn::Xor(load(i + 2 * kStep), load(i + 3 * kStep)));
  }
  for (; i < bytes; i += kStep) a = hn::Add(a, load(i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

double F32MultiplyAdds(std::size_t rounds) {
  const hn::CappedTag<float, 16> d;
  constexpr std::size_t kChains = 12;  // two units with a latency of 4 or 5 cycles
  hn::Vec<decltype(d)> sums[kChains];
  for (auto& sum : sums) sum = hn::Set(d, 1.0f);
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  for (std::size_t i = 0; i < rounds; ++i) {
    for (auto& sum : sums) sum = hn::MulAdd(sum, x, y);
  }
  for (std::size_t c = 1; c < kChains; ++c) sums[0] = hn::Add(sums[0], sums[c]);
  volatile float used = hn::GetLane(hn::SumOfLanes(d, sums[0]));
  (void)used;
  return static_cast<double>(rounds * kChains * hn::MaxLanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/amx_tiles.h"
#include "simd/cpu.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ballast::kernels {
HWY_EXPORT(ReadBytes);
HWY_EXPORT(F32MultiplyAdds);

std::uint64_t read_bytes(const std::byte* data, std::size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(ReadBytes)(data, bytes);
}

double f32_multiply_adds(std::size_t rounds) {
  return HWY_DYNAMIC_DISPATCH(F32MultiplyAdds)(rounds);
}

#if defined(__x86_64__)
// Debian's Highway has no bf16 dot product.
__attribute__((target("avx512f,avx512bf16"))) double bf16_multiply_adds(std::size_t rounds) {
  constexpr std::size_t kChains = 12;
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  const auto pairs = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  for (std::size_t i = 0; i < rounds; ++i) {
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, pairs, pairs);
  }
  for (std::size_t c = 1; c < kChains; ++c) sums[0] = _mm512_add_ps(sums[0], sums[c]);
  volatile float used = _mm512_reduce_add_ps(sums[0]);
  (void)used;
  return static_cast<double>(rounds * kChains * 32);
}

// Inline assembly, as the compiler would hoist multiplications of constants out of the loops.

namespace {
__attribute__((target("avx512f"))) double int16_avx512(std::size_t rounds) {
  constexpr std::size_t kChains = 12;
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  const __m512i words = _mm512_set1_epi32(1 << 16 | 2);
  for (std::size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) asm volatile("vpdpwssd %1, %1, %0" : "+v"(sum) : "v"(words));
  }
  return static_cast<double>(rounds * kChains * 32);
}

__attribute__((target("avx2"))) double int16_avx2(std::size_t rounds) {
  constexpr std::size_t kChains = 12;
  __m256i sums[kChains];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  const __m256i words = _mm256_set1_epi32(1 << 16 | 2);
  for (std::size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      __m256i products;
      asm volatile("vpmaddwd %2, %2, %1\n\tvpaddd %1, %0, %0"
                   : "+x"(sum), "=&x"(products)
                   : "x"(words));
    }
  }
  return static_cast<double>(rounds * kChains * 16);
}
}  // namespace

double int16_multiply_adds(std::size_t rounds) {
  return has_avx512_vnni() ? int16_avx512(rounds) : int16_avx2(rounds);
}

namespace {
// product() multiplies four tiles, to sums of their own, which hides the latency. Returns the
// number of tiles multiplied.
template <typename Product>
double tile_products(std::size_t rounds, const Product& product) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = 16;
  }
  const TileScope<AmxTiles> scope(config);  // all tiles become zeros
  for (std::size_t i = 0; i < rounds; ++i) product();
  return static_cast<double>(4 * rounds);
}
}  // namespace

double int8_tile_multiply_adds(std::size_t rounds) {
  return 16 * 16 * 64 * tile_products(rounds, [] {
           AmxTiles::dot_add<0, 4, 6>();
           AmxTiles::dot_add<1, 4, 7>();
           AmxTiles::dot_add<2, 5, 6>();
           AmxTiles::dot_add<3, 5, 7>();
         });
}

double bf16_tile_multiply_adds(std::size_t rounds) {
  return 16 * 16 * 32 * tile_products(rounds, [] {
           AmxTiles::dot_add_bf16<0, 4, 6>();
           AmxTiles::dot_add_bf16<1, 4, 7>();
           AmxTiles::dot_add_bf16<2, 5, 6>();
           AmxTiles::dot_add_bf16<3, 5, 7>();
         });
}
#else
double bf16_multiply_adds(std::size_t) { return 0; }
double int16_multiply_adds(std::size_t) { return 0; }
double int8_tile_multiply_adds(std::size_t) { return 0; }
double bf16_tile_multiply_adds(std::size_t) { return 0; }
#endif

}  // namespace ballast::kernels
#endif
