#include "simd/bf16_tiles.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "base/fail.h"
#include "simd/amx_tiles.h"
#include "simd/targets.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <hwy/base.h>

#if !defined(__clang__)
// GCC 12 warns about the undefined operands of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
#include "simd/bf16_tiles-inl.h"

namespace ballast {
namespace {

constexpr int kRows = 16, kSteps = 2;

struct alignas(64) Operands {
  std::uint16_t a[kSteps][kRows][32];     ///< rows of elements
  std::uint16_t b[kSteps][16][kRows][2];  ///< words of rows
};

/// Exponents as they are stored: 127 is that of 1. Elements with 0 are subnormal.
struct Exponents {
  std::uint32_t least, most;
};
struct Trial {
  Exponents a, b;
};
constexpr Trial kTrials[] = {
    // Many elements are equal but for the sign: sums cancel and are rounded.
    {{127, 127}, {127, 127}},
    {{123, 131}, {123, 131}},
    {{115, 139}, {115, 139}},
    {{59, 195}, {59, 195}},
    {{1, 253}, {1, 253}},
    // Products around the least normal number, 2⁻¹²⁶: products, their sums, the sum of both halves
    // and that of the steps are subnormal now and then, and must become zeros.
    {{61, 67}, {61, 67}},
    // Subnormal elements, which must count as zeros: the products would be normal.
    {{0, 2}, {185, 191}},
    {{185, 191}, {0, 2}},
};

void fill(std::span<std::uint16_t> elements, Exponents exponents, std::uint32_t& seed) {
  for (std::uint16_t& element : elements) {
    seed = seed * 1664525u + 1013904223u;
    const std::uint32_t exponent =
        exponents.least + (seed >> 8) % (exponents.most - exponents.least + 1);
    element = static_cast<std::uint16_t>((seed >> 31) << 15 | exponent << 7 | (seed >> 24 & 0x7F));
  }
}

__m512i load(const void* at) { return _mm512_load_si512(at); }

void by_vectors(const Operands& x, float (&sums)[kRows][kRows]) {
  const RoundingOfTiles rounding;
  for (int m = 0; m < kRows; ++m) {
    auto sum = _mm512_setzero_ps();
    for (int s = 0; s < kSteps; ++s) {
      __m512 halves[2] = {};
      for (int i = 0; i < kTileStepWords; ++i) {
        std::int32_t pair;
        std::memcpy(&pair, x.a[s][m] + 2 * i, sizeof(pair));
        auto& half = halves[i / 8];
        half = _mm512_dpbf16_ps(half, (__m512bh)load(x.b[s][i]), (__m512bh)_mm512_set1_epi32(pair));
      }
      sum = add_tile_step(sum, halves[0], halves[1]);
    }
    _mm512_store_ps(sums[m], sum);
  }
}

void by_tiles(const Operands& x, float (&sums)[kRows][kRows]) {
  Operands tiles;
  for (int s = 0; s < kSteps; ++s) {
    for (int m = 0; m < kRows; ++m) _mm512_store_si512(tiles.a[s][m], tile_order(load(x.a[s][m])));
    for (int i = 0; i < 8; ++i) {
      __m512i first, second;
      tile_rows(load(x.b[s][i]), load(x.b[s][8 + i]), first, second);
      _mm512_store_si512(tiles.b[s][2 * i], first);
      _mm512_store_si512(tiles.b[s][2 * i + 1], second);
    }
  }
  TileConfig config;
  for (int tile = 0; tile < 3; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = kRows;
  }
  const TileScope<AmxTiles> scope(config);
  for (int s = 0; s < kSteps; ++s) {
    AmxTiles::load<1>(tiles.a[s], 64);
    AmxTiles::load<2>(tiles.b[s], 64);
    AmxTiles::dot_add_bf16<0, 1, 2>();
  }
  AmxTiles::store<0>(sums, 64);
}

}  // namespace

std::string bf16_tile_difference() {
  std::uint32_t seed = 1;
  for (const Trial& trial : kTrials) {
    Operands operands;
    alignas(64) float vectors[kRows][kRows], tiles[kRows][kRows];
    fill({&operands.a[0][0][0], sizeof(operands.a) / 2}, trial.a, seed);
    fill({&operands.b[0][0][0][0], sizeof(operands.b) / 2}, trial.b, seed);
    by_vectors(operands, vectors);
    by_tiles(operands, tiles);
    for (int m = 0; m < kRows; ++m) {
      for (int n = 0; n < kRows; ++n) {
        const float x = vectors[m][n], y = tiles[m][n];
        const bool both_nan = x != x && y != y;
        if (both_nan || std::memcmp(&x, &y, sizeof(float)) == 0) continue;
        return fmt::format(
            "elements with stored exponents {} to {} by {} to {}, row {}, column {}: vectors make "
            "{:a}, "
            "tiles {:a}",
            trial.a.least, trial.a.most, trial.b.least, trial.b.most, m, n, x, y);
      }
    }
  }
  return {};
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#else

namespace ballast {
std::string bf16_tile_difference() { fail("this processor has no tiles"); }
}  // namespace ballast

#endif
