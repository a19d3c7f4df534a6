#include "simd/bf16_tiles.h"

#include <cstdint>
#include <cstring>

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

/// Elements of all magnitudes up to 2^±limit, of which many are equal but for the sign: sums
/// cancel, are rounded and become subnormal.
void fill(Operands& operands, int limit, std::uint32_t seed) {
  auto* at = reinterpret_cast<std::uint16_t*>(&operands);
  for (std::size_t i = 0; i < sizeof(operands) / 2; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const auto span = static_cast<std::uint32_t>(2 * limit + 1);
    const std::uint32_t exponent = 127u - static_cast<std::uint32_t>(limit) + (seed >> 8) % span;
    at[i] = static_cast<std::uint16_t>((seed >> 31) << 15 | exponent << 7 | (seed >> 24 & 0x7F));
  }
}

__m512i load(const void* at) { return _mm512_load_si512(at); }

void by_vectors(const Operands& x, float (&sums)[kRows][kRows]) {
  const FlushedSubnormals flushed;
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

bool bf16_tiles_add_as_vectors() {
  for (const int limit : {0, 4, 12, 68, 126}) {
    Operands operands;
    alignas(64) float vectors[kRows][kRows], tiles[kRows][kRows];
    fill(operands, limit, static_cast<std::uint32_t>(limit));
    by_vectors(operands, vectors);
    by_tiles(operands, tiles);
    for (int m = 0; m < kRows; ++m) {
      for (int n = 0; n < kRows; ++n) {
        const bool both_nan = vectors[m][n] != vectors[m][n] && tiles[m][n] != tiles[m][n];
        if (!both_nan && std::memcmp(&vectors[m][n], &tiles[m][n], sizeof(float)) != 0)
          return false;
      }
    }
  }
  return true;
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#else

namespace ballast {
bool bf16_tiles_add_as_vectors() { fail("this processor has no tiles"); }
}  // namespace ballast

#endif
