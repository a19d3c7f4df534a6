// Tiles of AMX: eight registers of up to 16 rows of 64 bytes, and products of int8 and of bfloat16.
//
// Assembly: GCC 12's intrinsics do not tell the compiler which memory they read, so that stores may
// move behind them.
//
// A thread's tiles are its own: the system saves them when it switches threads or delivers a
// signal, whose handler begins without any. A child of fork() has the permission but not the data.
// Others in a process may use tiles, too, so a kernel configures them when it begins and releases
// them when it ends (TileScope).
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/inline.h"

namespace ballast {

/// What ldtilecfg loads.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};  ///< of tiles 0 to 7
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// The instructions. Needs has_amx_int8(), bfloat16 has_amx_bf16(). Tests have the same functions
/// in C++.
struct AmxTiles {
#if defined(__x86_64__)
  static BALLAST_INLINE void configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  static BALLAST_INLINE void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int tile>
  static BALLAST_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  /// Loads the tile's rows, `stride` bytes apart.
  template <int tile>
  static BALLAST_INLINE void load(const void* p, std::size_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(tile), "r"(p), "r"(stride) : "memory");
  }
  template <int tile>
  static BALLAST_INLINE void store(void* p, std::size_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(tile), "r"(p), "r"(stride) : "memory");
  }
  /// sum[m][n] += Σ a[m][4q + i] · b[q][4n + i] over q and i < 4: int8 products, sums in int32.
  template <int sum, int a, int b>
  static BALLAST_INLINE void dot_add() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
  /// The same for unsigned a.
  template <int sum, int a, int b>
  static BALLAST_INLINE void dot_add_unsigned() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
  /// The same for pairs of bfloat16: of a[m][2q + i] · b[q][2n + i] the sum over all q is made for
  /// each i alone, from 0 on, each product added with one rounding; then both are added, and that
  /// to sum[m][n]. Subnormal results become zeros.
  template <int sum, int a, int b>
  static BALLAST_INLINE void dot_add_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
#else
  static void configure(const TileConfig&) {}
  static void release() {}
#endif
};

/// Configures this thread's tiles, and releases them at its end.
template <typename Tiles>
class TileScope {
 public:
  explicit TileScope(const TileConfig& config) { Tiles::configure(config); }
  ~TileScope() { Tiles::release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace ballast
